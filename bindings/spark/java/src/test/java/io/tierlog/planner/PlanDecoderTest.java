package io.tierlog.planner;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tierlog.plan.RangePlan;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** An answer that is cut or lies must end a query with an error, never the driver. */
class PlanDecoderTest {
  private static final String HEAD =
      "{\"rows\":10,\"exact_rows\":false,\"bytes\":99,\"tasks\":null,\"fail_on_data_loss\":true,"
          + "\"verify_checksums\":false,\"limit_taken\":false,\"aggregates_taken\":false,\"header_only\":false,\"trust_headers\":true}";

  /** Frames as the planner writes them. */
  private static final class Writer {
    private final ByteArrayOutputStream all = new ByteArrayOutputStream();
    private ByteArrayOutputStream body = new ByteArrayOutputStream();
    private DataOutputStream out = new DataOutputStream(body);

    Writer text(String text) throws IOException {
      byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
      out.writeInt(bytes.length);
      out.write(bytes);
      return this;
    }

    Writer i32(int... values) throws IOException {
      for (int value : values) {
        out.writeInt(value);
      }
      return this;
    }

    Writer i64(long... values) throws IOException {
      for (long value : values) {
        out.writeLong(value);
      }
      return this;
    }

    Writer flag(int value) throws IOException {
      out.writeByte(value);
      return this;
    }

    Writer raw(String text) throws IOException {
      out.write(text.getBytes(StandardCharsets.UTF_8));
      return this;
    }

    Writer frame(char type) throws IOException {
      DataOutputStream frames = new DataOutputStream(all);
      frames.writeInt(body.size());
      frames.writeByte(type);
      body.writeTo(frames);
      body = new ByteArrayOutputStream();
      out = new DataOutputStream(body);
      return this;
    }
  }

  private static byte[] answer() throws IOException {
    Writer writer = new Writer();
    writer.raw(HEAD).frame('P');
    writer.text("local").text("/b").i32(1).text("region").text("r").i32(0).frame('O');
    writer.i32(0).text("orders").i32(3).text("label").text("name").text("a/b.log").i64(0, 1000).flag(1).i32(400);
    writer.flag(1).text("k1").text("wrapped").text("aad").i64(1_700_000_000_000L, 1_700_000_000_001L).frame('S');
    writer.i32(1).i32(0).i64(0, 1000, 5, 15, 3, 17, Long.MIN_VALUE, Long.MAX_VALUE).i32(-1).flag(1).i64(0, 0).i32(200);
    writer.i32(3, 10, 20, 30).frame('T');
    return writer.all.toByteArray();
  }

  private static ScanPlan decode(byte[] bytes) throws IOException {
    FrameStream frames = new FrameStream(new ByteArrayInputStream(bytes), OutputStream.nullOutputStream());
    PlanDecoder decoder = new PlanDecoder();
    while (true) {
      Frame frame;
      try {
        frame = frames.read();
      } catch (EOFException e) {
        return decoder.finished();
      }
      decoder.take(frame);
    }
  }

  @Test
  void everyMemberArrives() throws IOException {
    ScanPlan plan = decode(answer());
    assertEquals(10, plan.rows().orElseThrow());
    assertEquals(99, plan.bytes());
    assertEquals("StoreLocation[local, /b]", plan.stores().get(0).toString());
    assertEquals("r", plan.stores().get(0).options().get("region"));
    RangePlan range = plan.tasks().get(0).ranges().get(0);
    assertEquals("orders", range.segment().topic());
    assertEquals(3, range.segment().partition());
    assertEquals("k1", range.segment().keyId());
    assertEquals(1_700_000_000_000L, range.segment().lastModifiedMs());
    assertEquals(1_700_000_000_001L, range.segment().maxTimestampMs());
    assertEquals(15, range.toOffsetExclusive());
    assertEquals(3, range.leastOffset());
    assertEquals(17, range.greatestOffset());
    assertEquals(Long.MAX_VALUE, range.toTimestampExclusiveMs());
    assertEquals(null, range.aborted());
    assertArrayEquals(new int[] {10, 20, 30}, range.chunks().transformedSizes());
    assertEquals(200, range.chunks().lastOriginalSize());
    assertTrue(plan.tasks().get(0).failOnDataLoss());
    assertTrue(plan.tasks().get(0).trustHeaders());
  }

  @Test
  void rowsThatThePlannerKnowsAreNoAnswer() throws IOException {
    Writer writer = new Writer().raw(HEAD).frame('P').raw("[[\"orders\",3,null]]").frame('K');
    ScanPlan plan = decode(writer.raw("[[\"returns\",4,5]]").frame('K').all.toByteArray());
    assertEquals(null, plan.answer());
    assertEquals(Arrays.asList(Arrays.asList("orders", 3L, null), List.of("returns", 4L, 5L)), plan.known());
    assertEquals(List.of(), decode(answer()).known());
    for (String rows : new String[] {"{}", "[3]", "[[3.5]]", "["}) {
      byte[] damaged = new Writer().raw(HEAD).frame('P').raw(rows).frame('K').all.toByteArray();
      assertThrows(FrameException.class, () -> decode(damaged), rows);
    }
  }

  @Test
  void aCutFrameIsAnError() throws IOException {
    byte[] whole = answer();
    FrameStream frames;
    for (int length = 1; length < whole.length; length++) {
      byte[] cut = java.util.Arrays.copyOf(whole, length);
      frames = new FrameStream(new ByteArrayInputStream(cut), OutputStream.nullOutputStream());
      IOException ended = null;
      PlanDecoder decoder = new PlanDecoder();
      while (ended == null) {
        try {
          decoder.take(frames.read());
        } catch (IOException e) {
          ended = e;
        }
      }
      assertEquals(EOFException.class, ended.getClass(), "after " + length + " bytes");
    }
  }

  @Test
  void anyDamageIsAnErrorOrAPlan() throws IOException {
    Random random = new Random(7);
    byte[] whole = answer();
    int refused = 0;
    for (int round = 0; round < 20_000; round++) {
      byte[] damaged = whole.clone();
      for (int i = random.nextInt(3); i >= 0; i--) {
        damaged[random.nextInt(damaged.length)] = (byte) random.nextInt();
      }
      try {
        decode(damaged);
      } catch (IOException e) {
        refused++;
      }
    }
    assertTrue(refused > 5_000, "refused " + refused);
  }

  @Test
  void aCountThatLiesAllocatesNothing() throws IOException {
    byte[] task = new Writer().raw(HEAD).frame('P').i32(Integer.MAX_VALUE).frame('T').all.toByteArray();
    FrameException error = assertThrows(FrameException.class, () -> decode(task));
    assertTrue(error.getMessage().contains("leaves no room"), error.getMessage());
    byte[] store = new Writer().raw(HEAD).frame('P').i32(Integer.MAX_VALUE).frame('O').all.toByteArray();
    assertThrows(FrameException.class, () -> decode(store));
  }

  @Test
  void aFrameAboveTheLimitIsRefused() {
    byte[] head = {0x7f, -1, -1, -1, 'T'};
    assertThrows(FrameException.class, () -> decode(head));
    byte[] negative = {-1, -1, -1, -1, 'T'};
    assertThrows(FrameException.class, () -> decode(negative));
  }

  @Test
  void whatPointsNowhereIsRefused() throws IOException {
    Writer segment = new Writer().raw(HEAD).frame('P').i32(0).text("t").frame('S');
    assertThrows(FrameException.class, () -> decode(segment.all.toByteArray()));
    Writer task = new Writer().raw(HEAD).frame('P').i32(1, 0).i64(0, 1, 2, 3, 4, 5).i32(-1).flag(0).frame('T');
    assertThrows(FrameException.class, () -> decode(task.all.toByteArray()));
    assertThrows(FrameException.class, () -> decode(new Writer().text("x").frame('W').all.toByteArray()));
    assertThrows(FrameException.class, () -> decode(new byte[0]));
  }
}
