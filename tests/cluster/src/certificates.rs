//! Keys and certificates for a server that lives as long as a test run.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// An authority in a folder: `NAME.crt`, and what it signs beside it.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    name: String,
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    pub fn make(folder: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let authority = Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
            params,
            key,
        };
        write(&authority.certificate(), &certificate.pem())?;
        Ok(authority)
    }

    pub fn certificate(&self) -> PathBuf {
        self.folder.join(format!("{}.crt", self.name))
    }

    /// A server on the loopback address.
    pub fn server(&self, name: &str) -> Result<Signed> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        params.subject_alt_names.push(SanType::IpAddress(loopback));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(name, params)
    }

    /// A client that is known by its common name.
    pub fn client(&self, name: &str) -> Result<Signed> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, params)
    }

    fn sign(&self, name: &str, mut params: CertificateParams) -> Result<Signed> {
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer)?;
        let signed = Signed {
            certificate: self.folder.join(format!("{name}.crt")),
            key: self.folder.join(format!("{name}.key")),
        };
        write(&signed.certificate, &certificate.pem())?;
        write(&signed.key, &key.serialize_pem())?;
        Ok(signed)
    }
}

/// Files of one certificate.
#[derive(Debug)]
pub struct Signed {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A key that signs service account tokens, and the public half that checks them.
pub fn signing_key(private: &Path, public: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    write(private, &key.serialize_pem())?;
    write(public, &key.public_key_pem())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
