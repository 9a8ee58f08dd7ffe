//! Makes a self-signed certificate where none is given.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::tls::{KeyPairError, certified_key};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks of clients may be behind ours.
const BACKDATED: Duration = Duration::from_secs(3600);

/// What to put into it, and where to keep it.
#[derive(Debug, Clone)]
pub struct SelfSigned {
    /// `DIR/NAME.crt` and `DIR/NAME.key` are used again where they still serve, and written otherwise; without a
    /// folder the certificate lives as long as the process.
    pub dir: Option<PathBuf>,
    pub name: String,
    /// Beside `localhost` and `127.0.0.1`.
    pub ips: Vec<IpAddr>,
    pub names: Vec<String>,
}

impl SelfSigned {
    pub fn in_memory() -> Self {
        Self {
            dir: None,
            name: "apiserver".to_owned(),
            ips: Vec::new(),
            names: Vec::new(),
        }
    }

    pub fn kept_in(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: Some(dir.into()),
            ..Self::in_memory()
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    #[error("make a self-signed certificate")]
    Make(#[from] rcgen::Error),
    #[error("use the self-signed certificate")]
    Use(#[from] KeyPairError),
    #[error("write {}; make the folder writable or name another", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl SelfSigned {
    /// The kept one, or a fresh one.
    pub(super) fn obtain(&self) -> Result<Arc<CertifiedKey>, SelfSignedError> {
        if let Some((cert, key)) = self.paths()
            && let Some(kept) = kept(&cert, &key)
        {
            return Ok(kept);
        }
        let now = SystemTime::now();
        let (chain, key) = self.make(now.duration_since(UNIX_EPOCH).unwrap_or_default())?;
        if let Some((cert_path, key_path)) = self.paths() {
            write(&cert_path, &chain, 0o644)?;
            write(&key_path, &key, 0o600)?;
            tracing::info!(cert = %cert_path.display(), "made a self-signed certificate");
        }
        Ok(certified_key(chain.as_bytes(), key.as_bytes())?)
    }

    fn paths(&self) -> Option<(PathBuf, PathBuf)> {
        let dir = self.dir.as_ref()?;
        let file = |ending| dir.join(format!("{}.{ending}", self.name));
        Some((file("crt"), file("key")))
    }

    /// Chain (leaf, then its authority) and key as PEM. The authority's key is forgotten at once.
    fn make(&self, now: Duration) -> Result<(String, String), rcgen::Error> {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let valid = |params: &mut CertificateParams| {
            params.not_before = epoch + (now - BACKDATED);
            params.not_after = epoch + (now + YEAR);
        };
        let seconds = now.as_secs();
        let mut authority = CertificateParams::default();
        valid(&mut authority);
        authority.distinguished_name = common_name(format!("localhost-ca@{seconds}"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyCertSign,
        ];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let mut names = vec!["localhost".to_owned()];
        names.extend(self.names.iter().cloned());
        let mut leaf = CertificateParams::new(names)?;
        valid(&mut leaf);
        leaf.distinguished_name = common_name(format!("localhost@{seconds}"));
        let mut ips = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        ips.extend(self.ips.iter().filter(|ip| !ip.is_unspecified()));
        ips.sort_unstable();
        ips.dedup();
        let ips = ips.into_iter().map(SanType::IpAddress);
        leaf.subject_alt_names.extend(ips);
        leaf.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let cert = leaf.signed_by(&key, &authority)?;
        Ok((cert.pem() + &authority.pem(), key.serialize_pem()))
    }
}

fn common_name(name: String) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Still good to use? One that has expired would be refused by every client.
fn kept(cert: &Path, key: &Path) -> Option<Arc<CertifiedKey>> {
    let pair = certified_key(&fs::read(cert).ok()?, &fs::read(key).ok()?).ok()?;
    let leaf = pair.cert.first()?;
    let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
    leaf.validity().is_valid().then_some(pair)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), SelfSignedError> {
    let attempt = || {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        // A file that is there may be readable by more people than the key should be.
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    attempt().map_err(|source| SelfSignedError::Write {
        path: path.to_owned(),
        source,
    })
}
