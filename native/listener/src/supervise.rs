//! `supervise`: the parent of a listener or a shipper in a container. It starts its child again when that ends.
//!
//! A container that ends makes its pod unready, and each time for longer: up to five minutes. A logging program that ends
//! would so take a healthy server out of its service. This one stays, so the container does.

use super::command::Host;
use super::command::{Failure, OK};
use super::http::Reply;
use super::options::{Options, Syntax};
use crate::http::{TEXT, serve_at};
use libc::{SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1};
use queue::system::{self, ENDING, Signals, say};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(500);
const MOST_S: i64 = 86_400;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

static SYNTAX: Syntax = Syntax {
    name: "supervise",
    help: HELP,
    valued: &["delay", "kill-after", "live-port", "live-every", "memory-bytes", "metrics-port"],
    flags: &[],
    most_arguments: 0,
};
const HELP: &str = "\
Usage: inference-logging-listener supervise [OPTIONS] -- COMMAND [ARGUMENTS]

  Run a command, and start it again whenever it ends: at once, then after 1 s, 2 s and so on up to 60 s. After it ran for
  60 s the next start is at once again. It is made to be the first process of a container.

  SIGTERM and SIGINT end it: the command gets SIGTERM, is not started again, and its exit code is this one's (128 and
  the signal's number after a signal). A second signal is passed on at once. SIGHUP and SIGUSR1 are passed on.

Options:
  --delay SECONDS         From SIGTERM until the command gets it: time to read on for a shipper that stops at its signal.
                          [default: 0; 0<=x<=86400]
  --kill-after SECONDS    From then until the command is killed; 0: never. With --live-port a command that hung so is
                          started once more, to do what it left, and gets SIGTERM once it answers.
                          [default: 0; 0<=x<=86400]
  --live-port INTEGER     Ask http://127.0.0.1:PORT/live, and kill a command that six times in a row does not answer 200.
                          [1<=x<=65535]
  --live-every FLOAT      Seconds between two questions.  [default: 10; 0.01<=x<=86400]
  --memory-bytes INTEGER  Kill a command whose own memory grows above this. At the container's limit the kernel would
                          kill this process, too.  [1<=x<=2^63]
  --metrics-port INTEGER  Serve /metrics there, with inference_logging_restarts_total, and /producers of --live-port,
                          which is 200 while nothing answers; 0: a free port, which is reported.  [0<=x<=65535]
  -h, --help              Show this message and exit.
";

/// Runs the command to its end.
///
/// # Errors
/// The command line is wrong, there is no such command, or the port is taken.
pub fn run(host: &Host, arguments: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let mut command = Vec::new();
    let options = Options::read_before(host, &SYNTAX, arguments, Some(&mut command))?;
    if command.is_empty() {
        return Err(options.wrong("Missing argument 'COMMAND'."));
    }
    let seconds = |name| Ok(options.number(name, "integer range", 0..=MOST_S)?.unwrap_or(0).unsigned_abs());
    let port = options.number("metrics-port", "integer range", 0..=u16::MAX)?;
    let supervisor = Supervisor {
        delay: Duration::from_secs(seconds("delay")?),
        kill_after: Some(seconds("kill-after")?).filter(|seconds| *seconds > 0).map(Duration::from_secs),
        limits: Limits::read(&options)?,
        // Signals come first: the first process of a container receives no signal that it does not handle.
        signals: Signals::take(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD]),
        restarts: Arc::default(),
        command,
    };
    if let Some(port) = port {
        let port = supervisor.serve_restarts(port).map_err(Failure::Open)?;
        say(&format!("supervise: serves /metrics on port {port}"));
    }
    supervisor.supervise()
}

struct Supervisor {
    command: Vec<OsString>,
    delay: Duration,
    kill_after: Option<Duration>,
    limits: Limits,
    signals: Signals,
    restarts: Arc<AtomicU64>,
}

impl Supervisor {
    fn serve_restarts(&self, port: u16) -> Result<u16, String> {
        let (restarts, program, live_port) = (Arc::clone(&self.restarts), self.program(), self.limits.port);
        serve_at("0.0.0.0", port, move |request| match request.path.as_str() {
            "/metrics" => Reply::of(200, TEXT, metrics(&program, restarts.load(Ordering::Relaxed)).as_bytes()),
            "/producers" => match live_port.and_then(|port| status(port, "/producers")) {
                Some(503) => Reply::of(503, TEXT, b"a producer has died"),
                _ => Reply::of(200, TEXT, b"none is known to have died"),
            },
            _ => Reply::of(404, TEXT, b"Not Found"),
        })
    }

    /// The name of the command, without its folder.
    fn program(&self) -> String {
        let name = self.command.first().and_then(|path| Path::new(path).file_name());
        name.unwrap_or_default().to_string_lossy().replace(['"', '\\', '\n'], "_")
    }

    fn supervise(&self) -> Result<u8, Failure> {
        let mut pause = Duration::ZERO;
        loop {
            let begun = Instant::now();
            let (code, end) = match Child::start(&self.command) {
                Ok(child) => self.watch(&child),
                Err(sentence) if self.restarts.load(Ordering::Relaxed) == 0 => return Err(Failure::Open(sentence)),
                Err(sentence) => (not_started(&sentence), End::default()),
            };
            if end.killed
                && let Some(port) = self.limits.port
            {
                return Ok(self.finish(port, code));
            }
            if end.asked {
                return Ok(code);
            }
            pause = if begun.elapsed() >= LONGEST_PAUSE { Duration::ZERO } else { pause };
            say(&format!("supervise: {} ended with {code}; starts again in {} s", self.program(), pause.as_secs()));
            if self.is_asked_within(pause) {
                return Ok(code);
            }
            self.restarts.fetch_add(1, Ordering::Relaxed);
            pause = (pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        }
    }

    /// Waits for the child's end. Returns its exit code, and how it came.
    fn watch(&self, child: &Child) -> (u8, End) {
        let mut end = End::default();
        let mut watched = self.limits.watch();
        loop {
            let now = Instant::now();
            match self.signals.wait(LOOK.min(end.next(now))) {
                Some(number) if ENDING.contains(&number) => {
                    end.ask(if end.asked { Duration::ZERO } else { self.delay });
                }
                None | Some(SIGCHLD) => {}
                Some(number) => child.signal(number),
            }
            if let Some(code) = child.reap() {
                return (code, end);
            }
            if !end.is_near()
                && let Some(why) = watched.broken(child)
            {
                say(&format!("supervise: {} {why}: killed", self.program()));
                child.signal(SIGKILL);
            }
            end.act(child, self.kill_after);
        }
    }

    /// Lets another child do what one has left that hung as it was to end; it gets its SIGTERM once it answers.
    fn finish(&self, port: u16, code: u8) -> u8 {
        say(&format!("supervise: {} hung at its end; starts once more to finish", self.program()));
        self.restarts.fetch_add(1, Ordering::Relaxed);
        let child = match Child::start(&self.command) {
            Ok(child) => child,
            Err(sentence) => {
                not_started(&sentence);
                return code;
            }
        };
        let (mut end, patience) = (End::default(), self.kill_after.unwrap_or_default());
        let until = Instant::now() + patience;
        loop {
            self.signals.wait(LOOK.min(end.next(Instant::now())));
            if let Some(code) = child.reap() {
                return code;
            }
            if !end.asked && (status(port, "/live") == Some(200) || Instant::now() >= until) {
                end.ask(Duration::ZERO);
            }
            end.act(&child, self.kill_after);
        }
    }

    /// Waits; true: a signal has asked for the end.
    fn is_asked_within(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.signals.wait(left) {
                Some(number) if ENDING.contains(&number) => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }
}

/// A later start that fails, such as for want of memory, is one that has ended: the code is a shell's.
fn not_started(sentence: &str) -> u8 {
    say(&format!("supervise: {sentence}"));
    127
}

/// When a child that is to end gets SIGTERM, and when SIGKILL.
#[derive(Default)]
struct End {
    term: Option<Instant>,
    kill: Option<Instant>,
    asked: bool,
    terminated: bool,
    /// It did not end in its time.
    killed: bool,
}

impl End {
    fn ask(&mut self, delay: Duration) {
        self.asked = true;
        if !self.terminated {
            self.term = Some(Instant::now() + delay);
        }
    }

    /// Whether the child was asked to end, so that it need not answer.
    fn is_near(&self) -> bool {
        self.terminated
    }

    /// How long nothing is due.
    fn next(&self, now: Instant) -> Duration {
        let due = self.term.into_iter().chain(self.kill).min();
        due.map_or(LOOK, |due| due.saturating_duration_since(now))
    }

    fn act(&mut self, child: &Child, kill_after: Option<Duration>) {
        let now = Instant::now();
        if self.term.take_if(|due| *due <= now).is_some() {
            child.signal(SIGTERM);
            (self.terminated, self.kill) = (true, kill_after.map(|after| now + after));
        }
        if self.kill.take_if(|due| *due <= now).is_some() {
            child.signal(SIGKILL);
            self.killed = true;
        }
    }
}

fn metrics(program: &str, restarts: u64) -> String {
    format!(
        "# HELP inference_logging_restarts_total How often a logging program was started again after its end.\n\
         # TYPE inference_logging_restarts_total counter\n\
         inference_logging_restarts_total{{program=\"{program}\"}} {restarts}\n"
    )
}

static INSTALL: Syntax = Syntax { name: "install", help: INSTALL_HELP, valued: &[], flags: &[], most_arguments: 1 };
const INSTALL_HELP: &str = "\
Usage: inference-logging-listener install DIRECTORY

  Copy this program into a directory: to be a parent in a container whose image has no such program.

Options:
  -h, --help  Show this message and exit.
";

/// Copies this program into a directory.
///
/// # Errors
/// The command line is wrong, or the copy fails.
pub fn install(host: &Host, arguments: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let options = Options::read(host, &INSTALL, arguments)?;
    let [directory] = options.arguments() else { return Err(options.wrong("Missing argument 'DIRECTORY'.")) };
    let target = Path::new(directory).join(super::NAME);
    let copied = std::env::current_exe().and_then(|program| std::fs::copy(program, &target));
    copied.map_err(|error| Failure::Refused(format!("{}: {error}", target.display())))?;
    Ok(OK)
}

struct Child {
    pid: u32,
}

impl Child {
    /// Starts a command: the name or the path of a program, and its arguments.
    ///
    /// # Errors
    /// A sentence: the program cannot be started.
    pub fn start(command: &[OsString]) -> Result<Self, String> {
        let [program, arguments @ ..] = command else { return Err("no command".to_owned()) };
        let mut starting = Command::new(program);
        system::unmask_signals(starting.args(arguments));
        let child = starting.spawn();
        child
            .map(|child| Self { pid: child.id() })
            .map_err(|error| format!("{}: {error}", Path::new(program).display()))
    }

    pub fn signal(&self, number: i32) {
        system::send_signal(self.pid, number);
    }

    /// Collects every process that has ended, also those that others left to the first process of a container. Returns
    /// the exit code of this one if it has ended; after a signal that is 128 and its number.
    pub fn reap(&self) -> Option<u8> {
        let mut code = None;
        while let Some((pid, status)) = system::ended_child() {
            if pid == self.pid {
                code = Some(exit_code(ExitStatus::from_raw(status)));
            }
        }
        code
    }

    /// Bytes of memory that are its own; 0 where the system does not say.
    pub fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = anonymous.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or_default() << 10
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|number| 128 + number));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

// What makes a running child one that has to be replaced: it does not answer, or it has too much memory.

const MISSES: u32 = 6;
const PATIENCE: Duration = Duration::from_secs(3);
const EVERY_S: f64 = 10.0;

struct Limits {
    pub port: Option<u16>,
    every: Duration,
    memory_bytes: Option<u64>,
}

impl Limits {
    /// Reads the options of the command.
    ///
    /// # Errors
    /// One is out of its range.
    pub fn read(options: &Options) -> Result<Self, Failure> {
        let every = options.number("live-every", "float range", 0.01..=86_400.0)?.unwrap_or(EVERY_S);
        Ok(Self {
            port: options.number("live-port", "integer range", 1..=u16::MAX)?,
            every: Duration::from_secs_f64(every),
            memory_bytes: options.number("memory-bytes", "integer range", 1..=1 << 63)?,
        })
    }

    /// Begins to watch a child that has just started.
    pub fn watch(&self) -> Watched<'_> {
        Watched { limits: self, due: Instant::now() + self.every, misses: 0 }
    }
}

struct Watched<'a> {
    limits: &'a Limits,
    due: Instant,
    misses: u32,
}

impl Watched<'_> {
    /// Why the child has to be replaced, if it has.
    pub fn broken(&mut self, child: &Child) -> Option<String> {
        if self.limits.memory_bytes.is_some_and(|most| child.memory_bytes() > most) {
            return Some("has too much memory".to_owned());
        }
        let port = self.limits.port.filter(|_| Instant::now() >= self.due)?;
        self.due = Instant::now() + self.limits.every;
        self.misses = if status(port, "/live") == Some(200) { 0 } else { self.misses + 1 };
        (self.misses >= MISSES).then(|| format!("has not answered {MISSES} times"))
    }
}

/// The status of the child's answer; None: there is none in time.
fn status(port: u16, path: &str) -> Option<u16> {
    let ask = || -> std::io::Result<[u8; 12]> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).map(|()| head)
    };
    let head = ask().ok()?;
    std::str::from_utf8(&head).ok()?.get(9..)?.parse().ok()
}
