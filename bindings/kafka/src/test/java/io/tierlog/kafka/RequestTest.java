package io.tierlog.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.util.HexFormat;
import org.junit.jupiter.api.Test;

/** The sidecar would close every connection. */
class RequestTest {
  /** docs/sidecar-protocol.md, segment; %s is whether the transaction index is empty. */
  private static final String SEGMENT =
      "00000000000000010000000000000002" + "0001" + "74" + "00000003" + "00000000000000040000000000000005"
          + "0000000000000006" + "0000000000000007" + "0000000000000008" + "00000009" + "000000000000000a" + "00000064"
          + "01" + "%s" + "00000001" + "00000001" + "0000000000000006" + "0000000163";

  private static String segment() {
    byte unknown = LaterKafka.isTxnIdxEmpty(Segments.metadata(100));
    return SEGMENT.formatted(HexFormat.of().toHexDigits(unknown));
  }

  private static void assertFrame(String expected, byte[] frame) {
    String length = HexFormat.of().toHexDigits(expected.length() / 2);
    assertEquals(length + expected, HexFormat.of().formatHex(frame));
  }

  @Test
  void requestsAreAsThePageHasThem() {
    assertFrame("00" + "544c5343" + "0001" + "0001" + "00000007" + "00000002abcd",
        Request.hello(7, new byte[] {(byte) 0xab, (byte) 0xcd}));
    assertFrame("02" + segment() + "00000001" + "00000002" + "00010000",
        Request.fetchRange(Segments.metadata(100), 1, 2, 65536));
    assertFrame("03" + segment() + "04" + "00000005" + "00000006",
        Request.fetchIndex(Segments.metadata(100), (byte) 4, 5, 6));
    assertFrame("04" + segment(), Request.delete(Segments.metadata(100)));
    assertFrame("05", Request.health());
    assertFrame("06", Request.metrics());
  }

  @Test
  void aCopyNamesItsFiles() {
    String paths = string("/d/t-3/6.log") + string("/d/t-3/6.index") + string("/d/t-3/6.timeindex");
    String rest = "00" + "0000" + string("/d/t-3/6.snapshot") + "00000004" + "300a300a";
    assertFrame("01" + segment() + paths + rest, Request.copy(Segments.metadata(100), Segments.data()));
  }

  @Test
  void namesOfLaterKafkasAreFoundWhereTheyAre() {
    boolean later = isThere("org.apache.kafka.server.log.remote.storage.RetriableRemoteStorageException");
    var made = LaterKafka.retriable("text", null);
    assertEquals(later ? "RetriableRemoteStorageException" : "RemoteStorageException", made.getClass().getSimpleName());
    assertNotNull(made.getMessage());
  }

  private static boolean isThere(String name) {
    try {
      Class.forName(name);
      return true;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }

  private static String string(String text) {
    return HexFormat.of().toHexDigits((short) text.length()) + HexFormat.of().formatHex(text.getBytes());
  }
}
