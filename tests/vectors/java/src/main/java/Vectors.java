import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.TraceFlags;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.extension.incubator.trace.samplers.ComposableSampler;
import io.opentelemetry.sdk.extension.incubator.trace.samplers.CompositeSampler;
import io.opentelemetry.sdk.trace.samplers.Sampler;
import io.opentelemetry.sdk.trace.samplers.SamplingDecision;
import io.opentelemetry.sdk.trace.samplers.SamplingResult;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Writes the decisions of the OpenTelemetry SDK for Java, for tests/record/test_sampling.py:
 *
 * <pre>mvn -q compile exec:java -Dexec.args=../java.json</pre>
 */
public final class Vectors {
  private static final double[] RATIOS = {
    1, 0.9999, 0.75, 0.5, 1.0 / 3, 0.25, 0.2, 0.1, 0.0625, 0.01, 0.001, 0.0001, 1e-5, 1e-6
  };
  private static final long R_END = 1L << 56;
  private static final String PARENT_SPAN = "00f067aa0ba902b7";

  public static void main(String[] arguments) throws IOException {
    List<String> common = ordinary();
    for (long low : new long[] {0, 1, R_END / 2 - 1, R_END / 2, R_END - 1, R_END, Long.MAX_VALUE, Long.MIN_VALUE, Long.MIN_VALUE + 1, -1}) {
      common.add(id(low));
    }
    StringBuilder out = new StringBuilder("{\n \"versions\": {\"io.opentelemetry:opentelemetry-sdk-trace\": \"");
    out.append(Sampler.class.getPackage().getImplementationVersion());
    out.append("\", \"io.opentelemetry:opentelemetry-sdk-extension-incubator\": \"");
    out.append(ComposableSampler.class.getPackage().getImplementationVersion()).append("\"},\n \"ids\": ");
    out.append(texts(common)).append(",\n \"legacy\": [\n  ");
    List<String> parts = new ArrayList<>();
    for (double ratio : RATIOS) {
      parts.add(legacy(ratio, common));
    }
    parts.add(legacy(0, common));
    out.append(String.join(",\n  ", parts)).append("\n ],\n \"consistent\": [\n  ");
    parts.clear();
    for (double ratio : RATIOS) {
      parts.add(consistent(ratio, common));
    }
    out.append(String.join(",\n  ", parts)).append("\n ],\n \"parents\": [\n  ");
    out.append(String.join(",\n  ", parents())).append("\n ]\n}\n");
    Files.writeString(Path.of(arguments[0]), out);
  }

  private static String legacy(double ratio, List<String> common) {
    long bound = (long) (ratio * Long.MAX_VALUE);
    List<String> edges = new ArrayList<>();
    for (long low : new long[] {bound - 1, bound, bound + 1, 1 - bound, -bound, -1 - bound}) {
      edges.add(id(low));
    }
    return decisions(Sampler.traceIdRatioBased(ratio), ratio, common, edges);
  }

  private static String consistent(double ratio, List<String> common) {
    long threshold = R_END - Math.round(ratio * R_END);
    List<String> edges = new ArrayList<>();
    for (long low : new long[] {threshold - 1, threshold, threshold + 1, threshold | 0xa5L << 56}) {
      edges.add(id(low));
    }
    return decisions(CompositeSampler.wrap(ComposableSampler.probability(ratio)), ratio, common, edges);
  }

  private static String decisions(Sampler sampler, double ratio, List<String> common, List<String> edges) {
    List<String> ids = new ArrayList<>(common);
    ids.addAll(edges);
    StringBuilder kept = new StringBuilder();
    String th = "";
    for (String id : ids) {
      SamplingResult result = sampler.shouldSample(Context.root(), id, "", SpanKind.SERVER, Attributes.empty(), List.of());
      boolean isKept = result.getDecision() == SamplingDecision.RECORD_AND_SAMPLE;
      kept.append(isKept ? '1' : '0');
      String sent = result.getUpdatedTraceState(TraceState.getDefault()).get("ot");
      th = isKept && sent != null ? sent.replace("th:", "") : th;
    }
    return String.format(
        "{\"ratio\": %s, \"th\": \"%s\", \"edges\": %s, \"kept\": \"%s\"}", ratio, th, texts(edges), kept);
  }

  /** What a server decides whose caller sent these headers; its own ratio, which must not matter, is one half. */
  private static List<String> parents() {
    Sampler sampler = CompositeSampler.wrap(ComposableSampler.parentThreshold(ComposableSampler.probability(0.5)));
    List<String> out = new ArrayList<>();
    for (String state : new String[] {"", "th:0", "th:8", "th:c", "th:ffffffffffffff", "th:8;rv:00000000000000",
        "th:8;rv:7fffffffffffff", "th:8;rv:80000000000000", "rv:ffffffffffffff;th:c", "rv:00000000000000", "x:y;th:c"}) {
      for (TraceFlags flags : new TraceFlags[] {TraceFlags.getSampled(), TraceFlags.getDefault()}) {
        for (long low : new long[] {1, R_END / 2 - 1, R_END / 2, R_END / 4 * 3 - 1, R_END / 4 * 3, -1}) {
          out.add(parent(sampler, state, flags, id(low)));
        }
      }
    }
    return out;
  }

  private static String parent(Sampler sampler, String state, TraceFlags flags, String id) {
    TraceState traceState = state.isEmpty() ? TraceState.getDefault() : TraceState.builder().put("ot", state).build();
    SpanContext caller = SpanContext.createFromRemoteParent(id, PARENT_SPAN, flags, traceState);
    Context context = Context.root().with(Span.wrap(caller));
    SamplingResult result = sampler.shouldSample(context, id, "", SpanKind.SERVER, Attributes.empty(), List.of());
    String sent = result.getUpdatedTraceState(traceState).get("ot");
    return String.format(
        "{\"traceparent\": \"00-%s-%s-%s\", \"ot\": \"%s\", \"kept\": %s, \"sent\": \"%s\"}",
        id, PARENT_SPAN, flags.asHex(), state, result.getDecision() == SamplingDecision.RECORD_AND_SAMPLE,
        sent == null ? "" : sent);
  }

  /** Ids as SplitMix64 makes them from the numbers 1 to 24. */
  private static List<String> ordinary() {
    List<String> out = new ArrayList<>();
    for (long number = 1; number <= 24; number++) {
      long z = number * 0x9e3779b97f4a7c15L;
      z = (z ^ z >>> 30) * 0xbf58476d1ce4e5b9L;
      z = (z ^ z >>> 27) * 0x94d049bb133111ebL;
      out.add(id(z ^ z >>> 31));
    }
    return out;
  }

  private static String id(long low) {
    return String.format("4bf92f3577b34da6%016x", low);
  }

  private static String texts(List<String> texts) {
    return "[\"" + String.join("\", \"", texts) + "\"]";
  }

  private Vectors() {}
}
