// A Fluent forward server with TLS and shared key that writes each record to a file before it acknowledges it.
// Run: node fluent.js DIRECTORY-OF-PACKAGES PORT KEY CERTIFICATE SHARED-KEY FILE

const fs = require("fs");
const path = require("path");

const [packages, port, key, certificate, sharedKey, file] = process.argv.slice(2);
const library = path.join(packages, "node_modules", "@fluent-org", "logger");
const protocol = require(path.join(library, "build", "src", "protocol"));
const { FluentServer } = require(library);

// The library acknowledges a chunk before it hands over what is in it.
const parse = protocol.parseTransport;
protocol.parseTransport = (message) => {
  const chunk = parse(message);
  const lines = chunk.entries.map(([time, record]) =>
    JSON.stringify({ tag: chunk.tag, seconds: time.epoch, nanoseconds: time.nano, record }),
  );
  fs.appendFileSync(file, lines.map((line) => line + "\n").join(""));
  return chunk;
};

const server = new FluentServer({
  listenOptions: { host: "127.0.0.1", port: Number(port) },
  tlsOptions: { key: fs.readFileSync(key), cert: fs.readFileSync(certificate) },
  security: { sharedKey, serverHostname: "localhost", authorize: false, userDict: {} },
});
server.listen();
