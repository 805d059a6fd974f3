package io.tierlog.planner;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** What this jar is. */
public final class BuildInfo {
  /** Of docs/plan-protocol.md. */
  public static final int PROTOCOL = 3;

  /** Of the Python package that this jar was built from. */
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
