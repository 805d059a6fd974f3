package io.tierlog.engine;

import io.tierlog.plan.StoreLocation;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import sun.misc.Unsafe;

/**
 * The store client, driven by lines of standard input (tests/support/store_client.py): words, texts among them in
 * base64.
 *
 * <p>{@code open URL [NAME VALUE]…}, {@code read KEY START END}, {@code cancel KEY START END},
 * {@code interrupt KEY START END}, {@code counts}, {@code close}. An answer is one line.
 */
public final class StoreHarness {
  private static final Unsafe MEMORY = memory();
  private static final byte UNTOUCHED = 0x5a;

  private ObjectStoreClient client;

  private StoreHarness() {}

  private static Unsafe memory() {
    try {
      Field field = Unsafe.class.getDeclaredField("theUnsafe");
      field.setAccessible(true);
      return (Unsafe) field.get(null);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  public static void main(String[] arguments) throws IOException {
    StoreHarness harness = new StoreHarness();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      System.out.println(harness.answer(line.split(" ")));
      System.out.flush();
    }
  }

  private String answer(String[] words) {
    try {
      return switch (words[0]) {
        case "open" -> open(words);
        case "read" -> read(text(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
        case "cancel" -> cancel(text(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
        case "interrupt" -> interrupt(text(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
        case "counts" -> Arrays.toString(ObjectStoreClient.counts());
        case "close" -> {
          client.close();
          yield "closed";
        }
        default -> throw new IllegalArgumentException(words[0]);
      };
    } catch (TierlogException e) {
      return "error " + e.kind() + " " + base64(e.getMessage().getBytes(StandardCharsets.UTF_8));
    } catch (InterruptedException | RuntimeException e) {
      byte[] text = ("" + e.getMessage()).getBytes(StandardCharsets.UTF_8);
      return "error " + e.getClass().getSimpleName() + " " + base64(text);
    }
  }

  private String open(String[] words) {
    TreeMap<String, String> options = new TreeMap<>();
    for (int at = 2; at < words.length; at += 2) {
      options.put(text(words[at]), text(words[at + 1]));
    }
    client = ObjectStoreClient.open(new StoreLocation("object", text(words[1]), options, new TreeMap<>()), null);
    return "opened";
  }

  private String read(String key, long start, long end) throws InterruptedException {
    long address = MEMORY.allocateMemory(Math.max(1, end - start));
    try {
      long size = client.read(key, start, end, address);
      byte[] bytes = new byte[(int) size];
      for (int at = 0; at < size; at++) {
        bytes[at] = MEMORY.getByte(address + at);
      }
      return "bytes " + base64(bytes);
    } finally {
      MEMORY.freeMemory(address);
    }
  }

  /** Whether the memory stays as it is after a close, whatever still comes in. */
  private String cancel(String key, long start, long end) throws InterruptedException {
    long address = MEMORY.allocateMemory(end - start);
    try {
      client.begin(key, start, end, address).close();
      MEMORY.setMemory(address, end - start, UNTOUCHED);
      Thread.sleep(200);
      for (long at = 0; at < end - start; at++) {
        if (MEMORY.getByte(address + at) != UNTOUCHED) {
          return "written at " + at;
        }
      }
      return "untouched";
    } finally {
      MEMORY.freeMemory(address);
    }
  }

  /** Milliseconds that an interrupted reader took to come back, and with what. */
  private String interrupt(String key, long start, long end) throws InterruptedException {
    AtomicReference<String> outcome = new AtomicReference<>();
    String[] request = {"read", base64(key.getBytes(StandardCharsets.UTF_8)), "" + start, "" + end};
    Thread reader = new Thread(() -> outcome.set(answer(request)));
    reader.start();
    Thread.sleep(300);
    long began = System.nanoTime();
    reader.interrupt();
    reader.join();
    return (System.nanoTime() - began) / 1_000_000 + " " + outcome.get();
  }

  private static String text(String word) {
    return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
  }

  /** With a mark in front, so that an empty text is a word too. */
  private static String base64(byte[] bytes) {
    return "=" + Base64.getEncoder().encodeToString(bytes);
  }
}
