package io.tierlog.planner;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** The version of this jar and of its protocol. */
public final class BuildInfo {
  /** The version of docs/plan-protocol.md. */
  public static final int PROTOCOL = 4;

  /** The version of the Python package from which this jar was built. */
  public static final String VERSION = read();

  private BuildInfo() {}

  private static String read() {
    Properties properties = new Properties();
    try (InputStream resource = BuildInfo.class.getResourceAsStream("/io/tierlog/spark/build.properties")) {
      if (resource == null) {
        throw new IllegalStateException("this jar of tierlog is not whole: io/tierlog/spark/build.properties is gone");
      }
      properties.load(resource);
    } catch (IOException e) {
      throw new UncheckedIOException("the jar of tierlog cannot be read", e);
    }
    return properties.getProperty("version");
  }
}
