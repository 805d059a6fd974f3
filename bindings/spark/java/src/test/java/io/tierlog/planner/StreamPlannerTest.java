package io.tierlog.planner;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A stream's child. */
class StreamPlannerTest {
  private static final long NEVER = Long.MAX_VALUE;

  @TempDir Path folder;

  /** A query with an hour between its batches would list its tier, and read all manifests, for each of them. */
  @Test
  void theChildOfAStreamStaysUntilItsEnd() throws Exception {
    String plan =
        "{\"rows\":0,\"exact_rows\":true,\"bytes\":0,\"tasks\":0,\"fail_on_data_loss\":true,\"verify_checksums\":true,"
            + "\"limit_taken\":false,\"aggregates_taken\":false,\"header_only\":false,\"trust_headers\":false}";
    PythonCommand child = child("O", "{\"offsets\":{}}", "Z", "", "P", plan, "Z", "", "Z", "");
    PlannerClient client = new PlannerClient(child, end -> () -> {});
    StreamPlanner stream = new StreamPlanner(client, Map.of(), List.of(), ReadTopics.NONE);
    stream.ends(false);
    PlannerProcess process = (PlannerProcess) field(field(stream, "lease"), "child");
    assertNotEquals(NEVER, field(process, "dueNanos"), "Spark may never stop a query that has no batch yet");
    stream.plan(Map.of(), Map.of(), List.of(), List.of());
    assertEquals(NEVER, field(process, "dueNanos"));
    stream.close();
    assertNull(field(field(stream, "lease"), "child"));
    assertNotEquals(NEVER, field(process, "dueNanos"));
    process.close();
  }

  /** A planner that answers whatever it is asked with these frames, each a type and a body. */
  private PythonCommand child(String... frames) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    write(out, "V", "{\"protocol\":" + BuildInfo.PROTOCOL + ",\"version\":\"" + BuildInfo.VERSION + "\"}");
    for (int i = 0; i < frames.length; i += 2) {
      write(out, frames[i], frames[i + 1]);
    }
    Path answers = Files.write(folder.resolve("answers"), bytes.toByteArray());
    String text = "#!/bin/sh\ncat '" + answers + "'\nexec cat >/dev/null\n";
    Path script = Files.writeString(folder.resolve("planner"), text);
    script.toFile().setExecutable(true);
    return new PythonCommand(script.toString(), "a test");
  }

  private static void write(DataOutputStream out, String type, String body) throws IOException {
    byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
    out.writeInt(bytes.length);
    out.writeByte(type.charAt(0));
    out.write(bytes);
  }

  private static Object field(Object owner, String name) throws ReflectiveOperationException {
    Field field = owner.getClass().getDeclaredField(name);
    field.setAccessible(true);
    return field.get(owner);
  }
}
