package io.tierlog.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

/** Options that both sides read must be read alike, and paths shown without what must not be seen. */
class SourceOptionsTest {
  private static SourceOptions of(String name, String value) {
    return new SourceOptions(Map.of(name, value));
  }

  @Test
  void secretsOfAnUrlAreNotShown() {
    assertEquals("s3://***@bucket/a", of("path", " s3://key:hush@bucket/a").shownPaths());
    assertEquals("s3://bucket/a?***", of("path", "s3://bucket/a?token=hush#x").shownPaths());
    assertEquals("[/a, s3://***@b/c]", of("PATHS", "[\"/a\",\"s3://hush@b/c\"]").shownPaths());
    assertEquals("[]", of("paths", "no JSON").shownPaths());
    assertEquals("wasbs://***@acc.blob/a", of("path", "wasbs://key:hush@acc.blob/a").shownPaths());
  }

  @Test
  void aContainerOfAzuresIsShown() {
    String path = "abfss://tier@acc.dfs.core.windows.net/a";
    assertEquals(path, of("path", path).shownPaths());
  }

  @Test
  void sizesAreThoseOfPython() {
    assertEquals(1L << 20, bytes("1m"));
    assertEquals(128L << 20, bytes(" 128 MiB "));
    assertEquals(3L << 30, bytes("3gb"));
    assertEquals(77, bytes("77"));
    assertEquals(512L << 20, bytes("much"));
  }

  private static long bytes(String text) {
    return of("offheapbytespertask", text).readerSettings(new StructType()).offHeapBytesPerTask();
  }

  @Test
  void notNullIsToldToTheReader() {
    StructType schema = new StructType().add("offset", "bigint", false).add("value", "binary", true);
    assertEquals(java.util.Set.of("offset"), of("path", "/a").readerSettings(schema).notNull());
  }

  @Test
  void wordsAreTakenWithoutCase() {
    assertEquals("python", of("ENGINE", " Python ").engine());
    assertEquals("auto", of("path", "/a").engine());
    assertTrue(of("table", "Batches").otherTable());
    assertFalse(of("table", "bogus").otherTable());
    assertTrue(of("includeheaders", "True").includeHeaders());
    assertFalse(of("includeheaders", "banana").includeHeaders());
    assertEquals(List.of("a", "b"), of("columns", " a,,b ").columns());
    assertNull(of("columns", "a,a").columns());
    assertNull(of("columns", " , ").columns());
  }

  @Test
  void objectStoresAreTold() {
    assertTrue(of("path", "s3://b/p").namesObjectStore());
    assertTrue(of("path", "abfss://tier@acc.dfs.core.windows.net/p").namesObjectStore());
    assertFalse(of("path", "file:///p").namesObjectStore());
    assertFalse(of("path", "/p").namesObjectStore());
  }
}
