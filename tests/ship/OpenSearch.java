import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/**
 * OpenSearch as one node in a process of its own: FOLDER PORT NAME=VALUE... Its own command does not run as root, which
 * a test may be; the node, its storage and its HTTP interface are what that command starts.
 */
final class OpenSearch extends Node {
    private OpenSearch(Environment environment) {
        super(environment, List.<Class<? extends Plugin>>of(Netty4Plugin.class), false);
    }

    public static void main(String[] arguments) throws Exception {
        Settings.Builder settings = Settings.builder()
            .put("path.home", arguments[0])
            .put("http.port", arguments[1])
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("discovery.type", "single-node")
            .put("network.host", "127.0.0.1");
        for (int at = 2; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Environment environment = InternalSettingsPreparer.prepareEnvironment(
            settings.build(), Map.of(), Path.of(arguments[0]), () -> "node");
        new OpenSearch(environment).start();
        new CountDownLatch(1).await();
    }
}
