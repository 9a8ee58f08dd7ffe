//! What the embedded control plane proves itself and its users with: authorities, certificates, tokens. Made once and
//! kept in a folder, so that a kubeconfig stays good over restarts.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use ring::rand::SecureRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};

const AUTHORITY_LASTS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const LEAF_LASTS: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks of clients may be behind ours.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Whose certificate the server shows to aggregated API servers.
pub const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// Everything as PEM, but for the tokens' key.
#[derive(Clone)]
pub struct Credentials {
    /// Signs the server's certificate and those of clients.
    pub authority: String,
    pub server: KeyPairPem,
    /// Signs the certificate with which the server proves itself to aggregated API servers.
    pub front_proxy_authority: String,
    pub front_proxy_client: KeyPairPem,
    /// Signs service accounts' tokens (PKCS#8 DER, P-256).
    pub token_key: Vec<u8>,
    pub admin_token: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials { .. }")
    }
}

#[derive(Clone)]
pub struct KeyPairPem {
    pub chain: String,
    pub key: String,
}

impl std::fmt::Debug for KeyPairPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPairPem { .. }")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("make a key")]
    Key,
    #[error("{operation} {}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl Credentials {
    /// Those kept in the folder, completed where some are missing. Without a folder they live as long as the process.
    /// The server's certificate is made anew each time: for these names and addresses, and for another year.
    pub fn obtain(
        dir: Option<&Path>,
        names: &[String],
        addresses: &[IpAddr],
    ) -> Result<Self, CredentialsError> {
        let (authority, issuer) = authority(dir, "ca", "plimsoll-ca")?;
        let (proxy_authority, proxy_issuer) =
            self::authority(dir, "front-proxy-ca", "front-proxy-ca")?;
        Ok(Self {
            server: server_certificate(&issuer, names, addresses)?,
            front_proxy_client: client_certificate(&proxy_issuer, FRONT_PROXY_NAME)?,
            authority,
            front_proxy_authority: proxy_authority,
            token_key: token_key(dir)?,
            admin_token: admin_token(dir)?,
        })
    }

    /// A kubeconfig for the administrator.
    pub fn kubeconfig(&self, server: &str) -> String {
        use base64::Engine;
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.authority);
        let token = &self.admin_token;
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: plimsoll\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {authority}\nusers:\n- name: admin\n  user:\n    token: {token}\ncontexts:\n\
             - name: plimsoll\n  context:\n    cluster: plimsoll\n    user: admin\ncurrent-context: plimsoll\n"
        )
    }
}

fn validity(params: &mut CertificateParams, lasts: Duration) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + (now - BACKDATED);
    params.not_after = epoch + (now + lasts);
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// An authority's certificate, and what signs in its name.
fn authority(
    dir: Option<&Path>,
    file: &str,
    name: &str,
) -> Result<(String, Issuer<'static, KeyPair>), CredentialsError> {
    let mut params = CertificateParams::default();
    validity(&mut params, AUTHORITY_LASTS);
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyCertSign,
    ];
    let path = |ending: &str| dir.map(|dir| dir.join(format!("{file}.{ending}")));
    if let (Some(cert), Some(key)) = (path("crt"), path("key"))
        && let (Some(cert), Some(key)) = (read(&cert)?, read(&key)?)
    {
        let key = KeyPair::from_pem(&text(key))?;
        return Ok((text(cert) + "\n", Issuer::new(params, key)));
    }
    let key = KeyPair::generate()?;
    let cert = params.self_signed(&key)?.pem();
    if let (Some(cert_file), Some(key_file)) = (path("crt"), path("key")) {
        write(&key_file, key.serialize_pem().as_bytes(), 0o600)?;
        write(&cert_file, cert.as_bytes(), 0o644)?;
    }
    Ok((cert, Issuer::new(params, key)))
}

fn server_certificate(
    issuer: &Issuer<'_, KeyPair>,
    names: &[String],
    addresses: &[IpAddr],
) -> Result<KeyPairPem, CredentialsError> {
    let mut params = CertificateParams::new(names.to_vec())?;
    validity(&mut params, LEAF_LASTS);
    params.distinguished_name = named("plimsoll-apiserver");
    params
        .subject_alt_names
        .extend(addresses.iter().copied().map(SanType::IpAddress));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    signed(&params, issuer)
}

fn client_certificate(
    issuer: &Issuer<'_, KeyPair>,
    name: &str,
) -> Result<KeyPairPem, CredentialsError> {
    let mut params = CertificateParams::default();
    validity(&mut params, LEAF_LASTS);
    params.distinguished_name = named(name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    signed(&params, issuer)
}

fn signed(
    params: &CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<KeyPairPem, CredentialsError> {
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, issuer)?;
    Ok(KeyPairPem {
        chain: cert.pem(),
        key: key.serialize_pem(),
    })
}

fn token_key(dir: Option<&Path>) -> Result<Vec<u8>, CredentialsError> {
    kept(dir, "service-account.key", || {
        EcdsaKeyPair::generate_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &ring::rand::SystemRandom::new(),
        )
        .map(|key| key.as_ref().to_vec())
        .map_err(|_| CredentialsError::Key)
    })
}

fn admin_token(dir: Option<&Path>) -> Result<String, CredentialsError> {
    let bytes = kept(dir, "admin.token", || {
        use base64::Engine;
        let mut secret = [0; 32];
        ring::rand::SystemRandom::new()
            .fill(&mut secret)
            .map_err(|_| CredentialsError::Key)?;
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(secret);
        Ok(token.into_bytes())
    })?;
    Ok(text(bytes))
}

/// A secret in a file, made if it is not there.
fn kept(
    dir: Option<&Path>,
    file: &str,
    make: impl FnOnce() -> Result<Vec<u8>, CredentialsError>,
) -> Result<Vec<u8>, CredentialsError> {
    let Some(path) = dir.map(|dir| dir.join(file)) else {
        return make();
    };
    if let Some(found) = read(&path)? {
        return Ok(found);
    }
    let made = make()?;
    write(&path, &made, 0o600)?;
    Ok(made)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, CredentialsError> {
    match fs::read(path) {
        Ok(bytes) if bytes.is_empty() => Ok(None),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CredentialsError::File {
            operation: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

/// Whole or not at all, and never readable by more people than it should be.
pub fn write(path: &Path, contents: &[u8], mode: u32) -> Result<(), CredentialsError> {
    let attempt = || {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        let _ = fs::remove_file(&unfinished);
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&unfinished)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    attempt().map_err(|source| CredentialsError::File {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_once_is_kept() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let names = vec!["localhost".to_owned()];
        let first = Credentials::obtain(Some(dir.path()), &names, &[]).unwrap();
        let second = Credentials::obtain(Some(dir.path()), &names, &[]).unwrap();
        assert_eq!(first.authority.trim(), second.authority.trim());
        assert_eq!(first.admin_token, second.admin_token);
        assert_eq!(first.token_key, second.token_key);
        assert_ne!(first.server.key, second.server.key);
        for secret in [
            "ca.key",
            "front-proxy-ca.key",
            "admin.token",
            "service-account.key",
        ] {
            let mode = fs::metadata(dir.path().join(secret))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{secret}");
        }
        assert!(
            first
                .kubeconfig("https://127.0.0.1:6443")
                .contains(&first.admin_token)
        );
    }
}
