package io.tierlog.kafka;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.config.ConfigException;

/** The sidecar: one that runs on this machine, or one that is started here and ends with the broker. */
final class Sidecar implements Closeable {
  private static final Path USUAL_SOCKET = Path.of("/run/tierlog/sidecar.sock");

  private final Path running;
  private final SidecarProcess child;

  private Sidecar(Path running, SidecarProcess child) {
    this.running = running;
    this.child = child;
  }

  /**
   * Finds the sidecar of the configuration, or starts one.
   *
   * @throws ConfigException none runs there, or it does not start
   */
  static Sidecar find(PluginConfig config) {
    if (config.socket() != null) {
      Path socket = Path.of(config.socket());
      if (!Files.exists(socket)) {
        throw new ConfigException(
            "no sidecar listens at " + socket + " (rsm.config." + PluginConfig.SOCKET + "): start it before the broker, by "
                + "`systemctl start tierlog-sidecar` or `tierlog sidecar`, or leave the key out: the broker then starts one");
      }
      return new Sidecar(socket, null);
    }
    if (Files.exists(USUAL_SOCKET)) {
      return new Sidecar(USUAL_SOCKET, null);
    }
    return new Sidecar(null, SidecarProcess.start(config));
  }

  /**
   * Where it listens.
   *
   * @throws IOException one that is started here does not until the deadline
   */
  Path socket(Deadline deadline) throws IOException {
    return child == null ? running : child.socket(deadline);
  }

  /** Ends one that was started here. */
  @Override
  public void close() {
    if (child != null) {
      child.close();
    }
  }

  @Override
  public String toString() {
    return child == null ? "the sidecar at " + running : child.toString();
  }
}
