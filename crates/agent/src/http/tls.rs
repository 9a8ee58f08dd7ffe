//! TLS from files, taken anew when they change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Clients must show a certificate of this authority.
    pub client_ca: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("read {}", path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("{} holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("client authority {}", path.display())]
    Authority {
        path: PathBuf,
        #[source]
        source: rustls::server::VerifierBuilderError,
    },
    #[error("certificate {}", path.display())]
    Config {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
}

/// The configuration that new connections get.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let current = RwLock::new(Arc::new(build(&files)?));
        Ok(Self { files, current })
    }

    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read())
    }

    /// Reads the files again; the old certificate stays if the new one will not do (half of a pair was replaced, say).
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = build(&self.files)?;
        *self.current.write() = Arc::new(fresh);
        Ok(())
    }

    pub fn paths(&self) -> Vec<&Path> {
        let ca = self.files.client_ca.as_deref();
        let pair = [self.files.cert.as_path(), self.files.key.as_path()];
        pair.into_iter().chain(ca).collect()
    }
}

fn build(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::Pem {
        path: files.key.clone(),
        source,
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |source| TlsError::Config {
        path: files.cert.clone(),
        source,
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(failed)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|source| TlsError::Authority {
                    path: path.clone(),
                    source,
                })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(failed)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |source| TlsError::Pem {
        path: path.to_owned(),
        source,
    };
    let list = CertificateDer::pem_file_iter(path).map_err(fail)?;
    let list: Vec<_> = list.collect::<Result<_, _>>().map_err(fail)?;
    match list.is_empty() {
        true => Err(TlsError::NoCertificate(path.to_owned())),
        false => Ok(list),
    }
}

/// Tells when files have changed, by what the file system says of them. A mounted secret changes by a link being moved,
/// which shows as another file behind the same name.
#[derive(Debug)]
pub struct Watched {
    paths: Vec<PathBuf>,
    seen: Mutex<Vec<Stamp>>,
}

type Stamp = Option<(SystemTime, u64, u64)>;

impl Watched {
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let seen = Mutex::new(paths.iter().map(|path| stamp(path)).collect());
        Self { paths, seen }
    }

    /// Changed since the last time this was asked?
    pub fn changed(&self) -> bool {
        let now: Vec<Stamp> = self.paths.iter().map(|path| stamp(path)).collect();
        let mut seen = self.seen.lock();
        let changed = *seen != now;
        *seen = now;
        changed
    }
}

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len(), meta.ino()))
}
