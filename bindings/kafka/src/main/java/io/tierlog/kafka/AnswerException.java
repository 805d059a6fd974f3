package io.tierlog.kafka;

import java.io.IOException;

/** The sidecar's answer of another status than 0. The connection is as it was. */
final class AnswerException extends IOException {
  private static final long serialVersionUID = 1L;

  static final int NOT_FOUND = 1;
  static final int RETRIABLE = 2;
  static final int CONFIGURATION = 5;
  static final int STOPPING = 6;

  private final int status;

  AnswerException(int status, String text) {
    super(text);
    this.status = status;
  }

  int status() {
    return status;
  }
}
