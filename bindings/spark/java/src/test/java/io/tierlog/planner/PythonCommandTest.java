package io.tierlog.planner;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Map;
import org.junit.jupiter.api.Test;

/** Plans by another interpreter than the workers' would name packages that are not there. */
class PythonCommandTest {
  @Test
  void theOrderIsThatOfTheDocumentation() {
    Map<String, String> all = Map.of("PYSPARK_PYTHON", "/a/python", "PYSPARK_DRIVER_PYTHON", "/c/python3.12");
    assertEquals("/o/python (of option plannerPython)", PythonCommand.choose("/o/python", all, "/b").toString());
    assertEquals("/a/python (of PYSPARK_PYTHON)", PythonCommand.choose(null, all, "/b").toString());
    Map<String, String> driver = Map.of("PYSPARK_DRIVER_PYTHON", "/c/python3.12");
    assertEquals("/b (of spark.pyspark.python)", PythonCommand.choose(" ", driver, "/b").toString());
    assertEquals("/c/python3.12 (of PYSPARK_DRIVER_PYTHON)", PythonCommand.choose(null, driver, null).toString());
    assertEquals("python3 (of PATH)", PythonCommand.choose(null, Map.of(), null).toString());
  }

  @Test
  void aDriverThatIsNoPythonIsPassedOver() {
    Map<String, String> jupyter = Map.of("PYSPARK_DRIVER_PYTHON", "/usr/bin/jupyter");
    assertEquals("python3", PythonCommand.choose(null, jupyter, null).executable());
  }

  @Test
  void whatExecutorsUnpackIsPassedOverWhereItIsNot() {
    Map<String, String> packed =
        Map.of("PYSPARK_PYTHON", "./environment/bin/python", "PYSPARK_DRIVER_PYTHON", "python");
    assertEquals("python", PythonCommand.choose(null, packed, null).executable());
  }
}
