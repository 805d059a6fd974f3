package io.tierlog.planner;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * The interpreter that plans, and who named it.
 *
 * @param executable as {@link ProcessBuilder} takes it
 * @param origin for messages
 */
public record PythonCommand(String executable, String origin) {
  public static final String OPTION = "plannerPython";

  private static final Pattern PYTHON = Pattern.compile("(?:python|pypy)[0-9.]*(?:\\.exe)?");

  /**
   * Chooses by the option, {@code PYSPARK_PYTHON}, {@code spark.pyspark.python}, {@code PYSPARK_DRIVER_PYTHON} if it is
   * a Python (it may be Jupyter), {@code python3}.
   *
   * <p>A relative path that is not there is passed over: {@code ./environment/bin/python} of {@code --archives} is
   * unpacked on executors, and in client mode not on the driver.
   *
   * @param option null: not given
   * @param configured {@code spark.pyspark.python}; null: not set
   */
  public static PythonCommand choose(String option, Map<String, String> environment, String configured) {
    if (isSet(option)) {
      return new PythonCommand(option.strip(), "option " + OPTION);
    }
    String workers = environment.get("PYSPARK_PYTHON");
    if (isSet(workers) && isHere(workers)) {
      return new PythonCommand(workers, "PYSPARK_PYTHON");
    }
    if (isSet(configured) && isHere(configured)) {
      return new PythonCommand(configured, "spark.pyspark.python");
    }
    String driver = environment.get("PYSPARK_DRIVER_PYTHON");
    if (isSet(driver) && PYTHON.matcher(Path.of(driver).getFileName().toString()).matches()) {
      return new PythonCommand(driver, "PYSPARK_DRIVER_PYTHON");
    }
    return new PythonCommand("python3", "PATH");
  }

  private static boolean isSet(String value) {
    return value != null && !value.isBlank();
  }

  private static boolean isHere(String executable) {
    return !executable.contains("/") || executable.startsWith("/") || Files.exists(Path.of(executable));
  }

  @Override
  public String toString() {
    return executable + " (of " + origin + ")";
  }
}
