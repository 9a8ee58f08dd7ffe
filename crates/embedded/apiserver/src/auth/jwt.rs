//! JSON web tokens signed with ES256, as far as service accounts need them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// What stands before a P-256 point in a DER SubjectPublicKeyInfo.
const PUBLIC_KEY_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("make a signing key")]
    Generate(#[source] rcgen::Error),
    #[error("read the signing key")]
    Pem(#[source] rcgen::Error),
    #[error("the signing key is not one of P-256: {0}")]
    Rejected(ring::error::KeyRejected),
}

/// Why a token is none of ours, in the words of token reviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// No token of this kind at all; others may know it.
    #[error("not a signed token")]
    Malformed,
    #[error("invalid signature, no keys found")]
    UnknownKey,
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
}

/// Signs tokens and checks what was signed.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    id: String,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.id)
    }
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    alg: String,
    #[serde(default)]
    kid: String,
}

impl SigningKey {
    /// A new key as PEM, to be kept and handed to [`Self::from_pem`].
    pub fn generate_pem() -> Result<String, KeyError> {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256);
        Ok(pair.map_err(KeyError::Generate)?.serialize_pem())
    }

    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let pair = rcgen::KeyPair::from_pem(pem).map_err(KeyError::Pem)?;
        Self::from_pkcs8(pair.serialized_der())
    }

    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
            .map_err(KeyError::Rejected)?;
        let mut public = PUBLIC_KEY_PREFIX.to_vec();
        public.extend_from_slice(pair.public_key().as_ref());
        let id = encoded(digest::digest(&digest::SHA256, &public).as_ref());
        Ok(Self { pair, random, id })
    }

    /// `None` only where the system gives no randomness.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": "ES256", "kid": self.id});
        let mut token = encoded(header.to_string().as_bytes());
        token.push('.');
        token += &encoded(claims.to_string().as_bytes());
        let signature = self.pair.sign(&self.random, token.as_bytes()).ok()?;
        token.push('.');
        token += &encoded(signature.as_ref());
        Some(token)
    }

    /// The claims of a token that this key has signed.
    pub fn verify(&self, token: &str) -> Result<Value, JwtError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, _) = signed.split_once('.').ok_or(JwtError::Malformed)?;
        let header = decoded(header)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| JwtError::Malformed)?;
        let signature = decoded(signature)?;
        let claims = unverified_claims(token)?;
        if !header.kid.is_empty() && header.kid != self.id {
            return Err(JwtError::UnknownKey);
        }
        if header.alg != "ES256" {
            return Err(JwtError::Signature);
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key());
        key.verify(signed.as_bytes(), &signature)
            .map_err(|_| JwtError::Signature)?;
        Ok(claims)
    }

    /// The public key as a JSON web key set.
    pub fn public_set(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        // An uncompressed point: 4, then both coordinates.
        let (x, y) = point[1..].split_at((point.len() - 1) / 2);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": encoded(x), "y": encoded(y),
        }]})
    }
}

/// What a token says, whoever wrote it: not to be believed.
pub(super) fn unverified_claims(token: &str) -> Result<Value, JwtError> {
    let parts: Vec<&str> = token.split('.').collect();
    let [_, claims, _] = parts.as_slice() else {
        return Err(JwtError::Malformed);
    };
    serde_json::from_slice(&decoded(claims)?).map_err(|_| JwtError::Malformed)
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decoded(text: &str) -> Result<Vec<u8>, JwtError> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| JwtError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SigningKey {
        SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap()
    }

    #[test]
    fn round_trip() {
        let key = key();
        let claims = json!({"sub": "a", "iss": "b"});
        let token = key.sign(&claims).unwrap();
        assert_eq!(key.verify(&token), Ok(claims));
    }

    #[test]
    fn the_key_survives_being_kept() {
        let pem = SigningKey::generate_pem().unwrap();
        let token = SigningKey::from_pem(&pem)
            .unwrap()
            .sign(&json!({}))
            .unwrap();
        assert!(SigningKey::from_pem(&pem).unwrap().verify(&token).is_ok());
    }

    #[test]
    fn forgeries() {
        let key = key();
        let token = key.sign(&json!({"sub": "a"})).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let with = |header: &str, claims: &str, signature: &str| {
            let token = format!("{header}.{claims}.{signature}");
            key.verify(&token).unwrap_err()
        };
        let other = encoded(br#"{"sub":"admin"}"#);
        assert_eq!(with(parts[0], &other, parts[2]), JwtError::Signature);
        let none = encoded(br#"{"alg":"none"}"#);
        assert_eq!(with(&none, parts[1], ""), JwtError::Signature);
        let hmac = encoded(br#"{"alg":"HS256"}"#);
        assert_eq!(with(&hmac, parts[1], parts[2]), JwtError::Signature);
        let stranger = encoded(br#"{"alg":"ES256","kid":"x"}"#);
        assert_eq!(with(&stranger, parts[1], parts[2]), JwtError::UnknownKey);
        assert_eq!(with("a", parts[1], parts[2]), JwtError::Malformed);
        for rubbish in ["", "a", "a.b", "a.b.c.d"] {
            assert_eq!(key.verify(rubbish), Err(JwtError::Malformed), "{rubbish}");
        }
        let elsewhere = self::key().sign(&json!({"sub": "a"})).unwrap();
        assert_eq!(key.verify(&elsewhere), Err(JwtError::UnknownKey));
    }

    #[test]
    fn key_set() {
        let set = key().public_set();
        assert_eq!(set["keys"][0]["x"].as_str().unwrap().len(), 43);
        assert_eq!(set["keys"][0]["y"].as_str().unwrap().len(), 43);
    }
}
