//! The certificate, which somebody renews while the program runs.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Certificate and key in two files.
pub struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    last: Mutex<Read>,
}

struct Read {
    bytes: (Vec<u8>, Vec<u8>),
    config: Arc<ServerConfig>,
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// One cannot be read, or the two do not belong together.
    pub fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, String> {
        let bytes = read(&certificate, &key)?;
        let config = config(&bytes)?;
        Ok(Self { certificate, key, last: Mutex::new(Read { bytes, config }) })
    }

    /// What a connection needs, of the files as they are now. Files that are wrong meanwhile are said once, and what
    /// was read before them goes on.
    pub fn current(&self) -> Arc<ServerConfig> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read(&self.certificate, &self.key) {
            Ok(bytes) if bytes == last.bytes => {}
            Ok(bytes) => {
                match config(&bytes) {
                    Ok(config) => last.config = config,
                    Err(sentence) => eprintln!("inference-logging-webhook: {sentence}"),
                }
                last.bytes = bytes;
            }
            Err(sentence) => eprintln!("inference-logging-webhook: {sentence}"),
        }
        Arc::clone(&last.config)
    }
}

fn read(certificate: &PathBuf, key: &PathBuf) -> Result<(Vec<u8>, Vec<u8>), String> {
    let read = |path: &PathBuf| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    Ok((read(certificate)?, read(key)?))
}

fn config((certificate, key): &(Vec<u8>, Vec<u8>)) -> Result<Arc<ServerConfig>, String> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| format!("the {what} cannot be used: {error}");
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| wrong("certificate", &error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong("key", &error))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    Ok(Arc::new(config.map_err(|error| wrong("certificate", &error))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    // Keys of nothing: openssl made them for these tests.
    const FIRST: [&str; 2] =
        [include_str!("../test-certificates/first.crt"), include_str!("../test-certificates/first.key")];
    const SECOND: [&str; 2] =
        [include_str!("../test-certificates/second.crt"), include_str!("../test-certificates/second.key")];

    fn write(directory: &Path, [certificate, key]: [&str; 2]) {
        fs::write(directory.join("tls.crt"), certificate).unwrap();
        fs::write(directory.join("tls.key"), key).unwrap();
    }

    #[test]
    fn a_renewed_certificate_counts_and_a_wrong_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let (crt, key) = (place.join("tls.crt"), place.join("tls.key"));
        write(place, FIRST);
        let certificate = Certificate::open(crt.clone(), key).unwrap();
        let first = certificate.current();
        assert!(Arc::ptr_eq(&first, &certificate.current()));
        write(place, SECOND);
        let second = certificate.current();
        assert!(!Arc::ptr_eq(&first, &second));
        for wrong in ["nothing", FIRST[0]] {
            fs::write(&crt, wrong).unwrap();
            assert!(Arc::ptr_eq(&second, &certificate.current()), "{wrong}");
        }
        fs::remove_file(&crt).unwrap();
        assert!(Arc::ptr_eq(&second, &certificate.current()));
        write(place, FIRST);
        assert!(!Arc::ptr_eq(&second, &certificate.current()));
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let (crt, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        let open = || Certificate::open(crt.clone(), key.clone()).map(|_| ()).unwrap_err();
        assert!(open().starts_with(&format!("{}: ", crt.display())));
        write(directory.path(), [FIRST[0], "nothing"]);
        assert!(open().starts_with("the key cannot be used: "));
        write(directory.path(), [FIRST[0], SECOND[1]]);
        assert!(open().starts_with("the certificate cannot be used: "));
    }
}
