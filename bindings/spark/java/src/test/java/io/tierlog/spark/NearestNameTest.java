package io.tierlog.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

/** Values of Python's difflib: both paths propose the same name. */
class NearestNameTest {
  @Test
  void ratiosAreThoseOfDifflib() {
    assertEquals(10.0 / 11, NearestName.ratio("offset", "offst"), 1e-12);
    assertEquals(0.75, NearestName.ratio("abcd", "bcde"), 1e-12);
    assertEquals(22.0 / 24, NearestName.ratio("timestamptype", "timestamptp"), 1e-12);
    assertEquals(0.0, NearestName.ratio("key", "xx"), 1e-12);
    assertEquals(1.0, NearestName.ratio("", ""), 1e-12);
  }

  @Test
  void theNearestIsNamed() {
    String[] names = RecordColumns.ALL.fieldNames();
    assertEquals("leaderEpoch", NearestName.among(names, "leaderepoch").orElseThrow());
    assertEquals("headers", NearestName.among(names, "header").orElseThrow());
    assertEquals(true, NearestName.among(names, "zzzz").isEmpty());
  }
}
