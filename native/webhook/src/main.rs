//! `inference-logging-webhook`: changes pods that ask for logging by an annotation, before the API server makes them.
//!
//! What a pod gets stands in a file, which the chart renders: volumes, init containers, and variables and mounts of its
//! containers. The program knows how to add them, and nothing of what they are.

#![forbid(unsafe_code)]

mod addition;
mod certificate;
mod pod;
mod review;
mod serve;

use addition::Addition;
use certificate::Certificate;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Usage: inference-logging-webhook --add PATH --certificate PATH --key PATH [OPTIONS]

  Answer the API server's reviews of new pods at POST /mutate, and probes at GET /live.

  A pod with the annotation inference-logging.io/inject: \"true\" gets what the file of --add says. No pod is ever
  refused: one that cannot be changed is let through as it is, and the answer warns why.

  Exit code: 0 after SIGTERM or SIGINT, 1 if it could not start, 2 if the command line is wrong.

Options:
  --add PATH          JSON: volumes, initContainers, and env and volumeMounts of the containers.  [required]
  --certificate PATH  PEM; read again for each connection, so that a renewed one counts at once.  [required]
  --key PATH          PEM.  [required]
  --port INTEGER      Where to serve HTTPS.  [default: 8443]
  -h, --help          Show this message and exit.
";

fn main() -> ExitCode {
    let options = match Options::read(std::env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(sentence) => {
            eprintln!("inference-logging-webhook: {sentence}");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("inference-logging-webhook: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), String> {
    let path = options.add.display();
    let text = fs::read_to_string(&options.add).map_err(|error| format!("--add {path}: {error}"))?;
    let addition = Addition::parse(&text).map_err(|error| format!("--add {path}: {error}"))?;
    let certificate = Certificate::open(options.certificate, options.key)?;
    serve::run(options.port, addition, certificate)
}

struct Options {
    add: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    port: u16,
}

impl Options {
    /// Reads the command line; none if it asks for the help.
    fn read(arguments: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let (mut add, mut certificate, mut key, mut port) = (None, None, None, 8443);
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
            use lexopt::prelude::*;
            let path = match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("add") => &mut add,
                Long("certificate") => &mut certificate,
                Long("key") => &mut key,
                Long("port") => {
                    let text = parser.value().map_err(|error| error.to_string())?;
                    let number = text.to_str().and_then(|text| text.parse().ok());
                    port = number.ok_or_else(|| format!("--port={}: not a port", text.to_string_lossy()))?;
                    continue;
                }
                other => return Err(other.unexpected().to_string()),
            };
            *path = Some(PathBuf::from(parser.value().map_err(|error| error.to_string())?));
        }
        let given = |path: Option<PathBuf>, name: &str| path.ok_or_else(|| format!("--{name} is missing"));
        let (add, certificate, key) = (given(add, "add")?, given(certificate, "certificate")?, given(key, "key")?);
        Ok(Some(Self { add, certificate, key, port }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Options>, String> {
        Options::read(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_wrong_command_line_is_named() {
        for (line, sentence) in [
            ("--add a --certificate c", "--key is missing"),
            ("--port 70000", "--port=70000: not a port"),
            ("--add", "missing argument for option '--add'"),
            ("--colour red", "invalid option '--colour'"),
            ("here", "unexpected argument \"here\""),
        ] {
            assert_eq!(read(line).err().as_deref(), Some(sentence));
        }
        assert!(matches!(read("--help"), Ok(None)));
    }

    #[test]
    fn options_are_read() {
        let options = read("--add a --certificate=c --key k --port 9").unwrap().unwrap();
        assert_eq!((options.add, options.certificate, options.key), ("a".into(), "c".into(), "k".into()));
        assert_eq!(options.port, 9);
    }
}
