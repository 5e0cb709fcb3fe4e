//! The resource of records in OpenTelemetry's sense: which service wrote them, in which pod, on which machine.
//!
//! The same attribute can have several origins; the first of these counts: the parameter `resource`; `service_name`, where it
//! is not the default; `OTEL_SERVICE_NAME`; `OTEL_RESOURCE_ATTRIBUTES`; what is found on the machine; the default of
//! `service_name`. It is read once, when a listener opens: it stands in the header of each segment, and on lines where
//! `resource_on_lines` asks for it. Records in the queue do not carry it.

use super::{Role, Settings};
use lines::json::escape::push_string;
use parameters::values::Values;
use queue::hex;
use sha2::{Digest, Sha256};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most attributes of a resource.
pub const MAX_ATTRIBUTES: usize = 64;
/// Longest name of an attribute.
const MAX_NAME_BYTES: usize = 128;
/// Longest value of an attribute.
const MAX_VALUE_BYTES: usize = 1024;
const SERVICE_NAME: &str = "service.name";
const DEFAULT_SERVICE_NAME: &str = "inference";
const ENVIRONMENT: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// Attributes by name, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource(Vec<(String, String)>);

impl Resource {
    /// Adds an attribute that has no value yet; an empty value is none.
    fn add(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        let is_known = self.0.iter().any(|(known, _)| known == name);
        if !is_known && !value.is_empty() && self.0.len() < MAX_ATTRIBUTES {
            self.0.push((name.to_owned(), value));
        }
    }

    /// Returns the value of an attribute.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the member `,"resource":{…}` of a line; empty if there is no attribute.
    #[must_use]
    pub fn member(&self) -> String {
        let mut member = b",\"resource\":".to_vec();
        let mut before = b'{';
        for (name, value) in &self.0 {
            member.push(before);
            push_string(&mut member, name.as_bytes());
            member.push(b':');
            push_string(&mut member, value.as_bytes());
            before = b',';
        }
        member.push(b'}');
        if self.0.is_empty() { String::new() } else { String::from_utf8_lossy(&member).into_owned() }
    }
}

/// What is known of the machine and the process.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Its name; empty: unknown.
    pub name: String,
    /// The id of its start; empty: unknown.
    pub boot_id: String,
    /// The contents of `/proc/self/cgroup` and of `/proc/self/mountinfo`.
    pub cgroup: String,
    pub mounts: String,
}

impl Host {
    /// Reads what the system says.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            name: queue::system::host_name(),
            boot_id: queue::system::boot_id(),
            cgroup: text("/proc/self/cgroup"),
            mounts: text("/proc/self/mountinfo"),
        }
    }

    /// The container in which the process runs; None: it runs in none, or the runtime does not say.
    ///
    /// Control groups of version 1 end with the id. With version 2 the files that the runtime mounts name it; the id behind
    /// `sandboxes` is the pod's, not the container's.
    #[must_use]
    pub fn container_id(&self) -> Option<String> {
        let of_group = self.cgroup.lines().filter_map(|line| {
            let last = line.rsplit('/').next()?;
            let name = last.strip_suffix(".scope").unwrap_or(last);
            container_id(name.rsplit(['-', ':']).next()?)
        });
        let of_mounts = self.mounts.lines().filter_map(|line| {
            let mut parts =
                line.split(['/', ' ']).skip_while(|part| !matches!(*part, "containers" | "overlay-containers"));
            parts.next()?;
            container_id(parts.next()?)
        });
        of_group.chain(of_mounts).next()
    }
}

fn container_id(text: &str) -> Option<String> {
    hex::read::<32>(text.as_bytes()).map(|_| text.to_owned())
}

impl Settings {
    /// Returns the resource of the records in a queue directory. `environment` is that of the process. In a process that
    /// only listens, the container is not the server's, and is left out.
    pub fn resource(
        &self,
        role: Role,
        queue_directory: &Path,
        host: &Host,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Resource {
        let mut resource = Resource::default();
        self.values.resource.iter().for_each(|(name, value)| resource.add(name, value.as_str()));
        let service = self.service_name();
        if service != DEFAULT_SERVICE_NAME {
            resource.add(SERVICE_NAME, service);
        }
        resource.add(SERVICE_NAME, environment("OTEL_SERVICE_NAME").unwrap_or_default());
        match of_environment(&environment(ENVIRONMENT).unwrap_or_default()) {
            Ok(attributes) => attributes.iter().for_each(|(name, value)| resource.add(name, value.as_str())),
            Err(why) => report(&format!("{why}; nothing of it is used")),
        }
        resource.add(SERVICE_NAME, service);
        resource.add("service.instance.id", instance(host, queue_directory));
        resource.add("host.name", host.name.as_str());
        if role == Role::Serves {
            resource.add("container.id", host.container_id().unwrap_or_default());
        }
        resource
    }
}

/// A line for the operator: the start goes on, since the variable belongs to other libraries too.
fn report(text: &str) {
    let _ = std::io::stderr().write_all(format!("inference_logging: {text}\n").as_bytes());
}

/// Returns a sentence where `resource` has more attributes than there may be.
pub fn violation(values: &Values) -> Option<String> {
    let count = values.resource.len();
    (count > MAX_ATTRIBUTES).then(|| format!("resource: has {count} attributes, must be at most {MAX_ATTRIBUTES}"))
}

/// Reads `name=value` pairs between commas, percent-encoded as in W3C Baggage. As OpenTelemetry's specification has it, one
/// fault makes all of it invalid.
pub fn of_environment(text: &str) -> Result<Vec<(String, String)>, String> {
    let wrong = |pair: &str, why: &str| format!("{ENVIRONMENT}: {pair:?} {why}");
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').ok_or_else(|| wrong(pair, "is no name=value"))?;
        let decoded = |text: &str| decoded(text.trim()).ok_or_else(|| wrong(pair, "is not percent-encoded UTF-8"));
        let (name, value) = (decoded(name)?, decoded(value)?);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || value.len() > MAX_VALUE_BYTES {
            let why =
                format!("must have a name of 1 to {MAX_NAME_BYTES} bytes, and a value of at most {MAX_VALUE_BYTES}");
            return Err(wrong(&pair.chars().take(MAX_NAME_BYTES).collect::<String>(), &why));
        }
        Ok((name, value))
    });
    let pairs: Vec<_> = pairs.collect::<Result<_, _>>()?;
    if pairs.len() > MAX_ATTRIBUTES {
        return Err(format!("{ENVIRONMENT}: has {} attributes, must be at most {MAX_ATTRIBUTES}", pairs.len()));
    }
    Ok(pairs)
}

fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, behind)) = rest.split_first() {
        let (byte, behind) = match byte {
            b'%' => {
                let (digits, behind) = behind.split_first_chunk::<2>()?;
                let [byte] = hex::read(&digits.to_ascii_lowercase())?;
                (byte, behind)
            }
            byte => (*byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// The id of the service's instance: the processes that share a queue directory, on one machine, until it starts again.
///
/// A UUID of version 8 (RFC 9562) made of a digest, so that each listener of the directory finds the same.
fn instance(host: &Host, queue_directory: &Path) -> String {
    let directory = std::path::absolute(queue_directory).unwrap_or_else(|_| queue_directory.to_owned());
    let mut digest = Sha256::new();
    for part in [host.boot_id.as_bytes(), host.name.as_bytes(), directory.as_os_str().as_bytes()] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let digest: [u8; 32] = digest.finalize().into();
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    let digits = format!("{:032x}", u128::from_be_bytes(id));
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}
