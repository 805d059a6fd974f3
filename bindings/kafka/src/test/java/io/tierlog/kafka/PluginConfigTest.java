package io.tierlog.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.Test;

/** A broker would be refused by its own sidecar, or tier by other keys than its file has. */
class PluginConfigTest {
  @Test
  void theDigestIsOverTheManagersKeysAlone() {
    Map<String, Object> keys = new HashMap<>(Map.of("b.key", " value ", "a.key", 7, "broker.id", 1, "tierlog.python", "p"));
    keys.put("c.key", null);
    // hashlib.sha256(b"a.key\0" b"7\0" b"b.key\0" b"value\0")
    String expected = "355fc4062e00d1cc2d888e5252b93ca05140fbeafcf46cddffade105de432d82";
    assertEquals(expected, HexFormat.of().formatHex(new PluginConfig(keys).digest()));
    keys.put("broker.id", 2);
    keys.put("node.id", 2); // from Kafka 4.4 on
    assertEquals(expected, HexFormat.of().formatHex(new PluginConfig(keys).digest()));
  }

  @Test
  void theJsonIsOneLineOfStrings() {
    Map<String, Object> keys = Map.of("secret", "a\"b\\c\nd\u00e9\ud83d\ude00", "chunk.size", 5, "tierlog.socket", "/x");
    assertEquals(
        "{\"chunk.size\":\"5\",\"secret\":\"a\\\"b\\\\c\\u000ad\\u00e9\\ud83d\\ude00\"}", new PluginConfig(keys).json());
    assertEquals("{}", new PluginConfig(Map.of("node.id", 3)).json());
    assertEquals(3, new PluginConfig(Map.of("node.id", 3)).brokerId());
    assertEquals(4, new PluginConfig(Map.of("broker.id", 4, "node.id", 3)).brokerId());
  }

  @Test
  void ourKeysHaveDefaultsAndBounds() {
    PluginConfig config = new PluginConfig(Map.of());
    assertNull(config.socket());
    assertEquals("python3", config.python());
    assertEquals(60_000, config.requestTimeoutMs());
    assertEquals(-1, config.brokerId());
    assertEquals(5, new PluginConfig(Map.of("tierlog.request.timeout.ms", "5")).requestTimeoutMs());
    ConfigException unknown = assertThrows(ConfigException.class, () -> new PluginConfig(Map.of("tierlog.sockett", "/x")));
    assertTrue(unknown.getMessage().contains("rsm.config.tierlog.sockett"), unknown.getMessage());
    assertTrue(unknown.getMessage().contains("tierlog.python, "), unknown.getMessage());
    for (String key : new String[] {"tierlog.request.timeout.ms", "tierlog.connections.max", "tierlog.start.timeout.ms"}) {
      assertThrows(ConfigException.class, () -> new PluginConfig(Map.of(key, "0")));
      assertThrows(ConfigException.class, () -> new PluginConfig(Map.of(key, "soon")));
    }
  }
}
