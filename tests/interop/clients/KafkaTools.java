import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's own tools one after the other in one JVM, as their shell scripts run them: each with classes of its own, since
 * they keep counts in static fields. Argument: kafka-tools.jar, which is not on the class path.
 *
 * A line of stdin is a call: the class and its arguments, each in base64. A line of stdout is its answer: the exit code, then
 * what the tool printed on stdout and on stderr, in base64.
 */
public final class KafkaTools {
    /** Thrown to end a tool, which may catch it and end once more: the first code is the one that a process would have had. */
    private static final class Ended extends Error {
        Ended(int code) {
            super("exit " + code, null, false, false);
        }
    }

    private static Integer exitCode;

    public static void main(String[] arguments) throws Exception {
        URL[] tools = {Path.of(arguments[0]).toUri().toURL()};
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> { });  // the tools have closed their clients when they return
        var calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] words = Arrays.stream(line.split(" ")).map(KafkaTools::decoded).toArray(String[]::new);
            var out = new ByteArrayOutputStream();
            var err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            int code;
            try (var loader = new URLClassLoader(tools, KafkaTools.class.getClassLoader())) {
                Thread.currentThread().setContextClassLoader(loader);
                code = run(loader.loadClass(words[0]), Arrays.copyOfRange(words, 1, words.length));
            } finally {
                System.out.flush();
                System.err.flush();
                System.setErr(errors);
            }
            answers.println(code + " " + encoded(out) + "- " + encoded(err) + "-");
            answers.flush();
        }
    }

    private static void end(int code) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new Ended(code);
    }

    private static int run(Class<?> tool, String[] arguments) throws Exception {
        exitCode = null;
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException failed) {
            if (exitCode == null) {
                failed.getCause().printStackTrace();
                return 1;
            }
        }
        return exitCode == null ? 0 : exitCode;
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream printed) {
        return Base64.getEncoder().encodeToString(printed.toByteArray());
    }
}
