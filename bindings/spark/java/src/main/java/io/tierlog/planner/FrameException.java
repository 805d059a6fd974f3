package io.tierlog.planner;

import java.io.IOException;

/** Bytes of the planner that are no frame of the protocol. Asking again cannot help. */
final class FrameException extends IOException {
  private static final long serialVersionUID = 1L;

  FrameException(String text) {
    super(text);
  }
}
