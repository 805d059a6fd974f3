package io.tierlog.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Secrets would be seen by others, a broker would stay without a tier after a crash, or leave processes behind. */
@Timeout(120)
class SidecarProcessTest {
  /** A sidecar in Python: notes its arguments and configuration, serves deletes, ends with its input. */
  private static final String SIDECAR =
      """
      #!/usr/bin/env python3
      import json, os, socket, sys, threading
      here = os.path.dirname(__file__)
      line = sys.stdin.readline()
      print("a line of its log", file=sys.stderr)
      with open(here + "/started", "a") as out:
          out.write(json.dumps([os.getpid(), sys.argv[1:], json.loads(line)]) + "\\n")
      if json.loads(line).get("fail"):
          sys.exit("it cannot start")
      listener = socket.socket(socket.AF_UNIX)
      listener.bind(sys.argv[-1].removeprefix("unix:"))
      listener.listen(64)
      def serve(peer):
          while head := peer.recv(4, socket.MSG_WAITALL):
              frame = peer.recv(int.from_bytes(head), socket.MSG_WAITALL)
              peer.sendall(bytes.fromhex("0000000a 00 0001 000178 00000001" if not frame[0] else "00000001 00"))
      def accept():
          while True:
              peer, _ = listener.accept()
              threading.Thread(target=serve, args=(peer,), daemon=True).start()
      threading.Thread(target=accept, daemon=True).start()
      print("ready", flush=True)
      if json.loads(line).get("stubborn"):
          threading.Event().wait()
      sys.stdin.read()
      open(here + "/ended", "a").close()
      """;

  @TempDir Path folder;
  private Path script;

  @BeforeEach
  void write() throws IOException {
    script = folder.resolve("python");
    Files.writeString(script, SIDECAR);
    Files.setPosixFilePermissions(script, PosixFilePermissions.fromString("rwx------"));
  }

  private TierlogRemoteStorageManager manager(Map<String, ?> more) {
    Map<String, Object> keys = new HashMap<>(Map.of("tierlog.python", script.toString()));
    keys.putAll(more);
    TierlogRemoteStorageManager made = new TierlogRemoteStorageManager();
    made.configure(keys);
    return made;
  }

  private List<String> starts() throws IOException {
    return Files.readAllLines(folder.resolve("started"));
  }

  private long lastProcess() throws IOException {
    List<String> starts = starts();
    String last = starts.get(starts.size() - 1);
    return Long.parseLong(last.substring(1, last.indexOf(',')));
  }

  private static Path socketOf(String start) {
    return Path.of(start.replaceFirst(".*\"unix:", "").replaceFirst("\".*", ""));
  }

  @Test
  void theConfigurationGoesOverTheInputAlone() throws Exception {
    Path socket;
    try (TierlogRemoteStorageManager manager = manager(Map.of("store.secret", "s3cret", "broker.id", 4))) {
      manager.deleteLogSegmentData(Segments.metadata(1));
      String start = starts().get(0);
      socket = socketOf(start);
      String expected =
          "[\"-m\", \"tierlog\", \"sidecar\", \"--config\", \"-\", \"--listen\", \"unix:" + socket + "\"], "
              + "{\"broker.id\": \"4\", \"store.secret\": \"s3cret\"}]";
      assertTrue(start.endsWith(expected), start);
      Path around = socket.getParent();
      assertEquals("rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(around)));
    }
    assertTrue(Files.exists(folder.resolve("ended")));
    assertFalse(Files.exists(socket.getParent()));
    assertFalse(ProcessHandle.of(lastProcess()).map(ProcessHandle::isAlive).orElse(false));
  }

  @Test
  void oneThatDiesIsStartedAgain() throws Exception {
    try (TierlogRemoteStorageManager manager = manager(Map.of())) {
      for (int i = 1; i <= 3; i++) {
        manager.deleteLogSegmentData(Segments.metadata(1));
        assertEquals(i, starts().size());
        ProcessHandle process = ProcessHandle.of(lastProcess()).orElseThrow();
        process.destroyForcibly();
        process.onExit().join();
      }
      manager.deleteLogSegmentData(Segments.metadata(1));
    }
  }

  @Test
  void closeWhileItIsAwayStartsNoOther() throws Exception {
    TierlogRemoteStorageManager manager = manager(Map.of());
    ProcessHandle process = ProcessHandle.of(lastProcess()).orElseThrow();
    process.destroyForcibly();
    process.onExit().join();
    manager.close();
    int count = starts().size();
    Thread.sleep(600);
    assertEquals(count, starts().size());
  }

  @Test
  void oneThatDoesNotEndIsKilled() throws Exception {
    PluginConfig config = new PluginConfig(Map.of("tierlog.python", script.toString(), "stubborn", "1"));
    SidecarProcess stubborn = SidecarProcess.start(config, 200);
    ProcessHandle process = ProcessHandle.of(lastProcess()).orElseThrow();
    stubborn.close();
    process.onExit().join();
    assertFalse(Files.exists(folder.resolve("ended")));
  }

  @Test
  void whyItDoesNotStartIsSaid() {
    ConfigException failed = assertThrows(ConfigException.class, () -> manager(Map.of("fail", "1")));
    assertTrue(failed.getMessage().contains("it cannot start"), failed.getMessage());
    assertFalse(failed.getMessage().contains("pip install"), failed.getMessage());
    ConfigException none = assertThrows(ConfigException.class, () -> manager(Map.of("tierlog.python", "/none/python")));
    assertTrue(none.getMessage().contains("/none/python"), none.getMessage());
    assertTrue(none.getMessage().contains("tierlog.python"), none.getMessage());
  }
}
