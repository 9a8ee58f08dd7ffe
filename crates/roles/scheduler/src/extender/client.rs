//! How an extender is reached.

use std::io::ErrorKind;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http_body_util::BodyExt;
use kube::client::Body;
use plimsoll_client::{chain, skip_tls_verify};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::config::ExtenderConfig;

const TIMEOUT: Duration = Duration::from_secs(5);

pub struct HttpClient {
    client: kube::Client,
    prefix: String,
    within: Duration,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl HttpClient {
    pub fn build(config: &ExtenderConfig) -> Result<Self, String> {
        let prefix = config.url_prefix.trim_end_matches('/').to_owned();
        let address: http::Uri = prefix.parse().map_err(|error| format!("{error}"))?;
        let mut server = kube::Config::new(address);
        // Without an authority there is nobody to vouch for it; the original goes on, too.
        skip_tls_verify(&mut server);
        server.read_timeout = None;
        // It is asked once; what does not work is told.
        server.default_retry = false;
        if config.enable_https {
            let tls = config.tls_config.clone().unwrap_or_default();
            let authority = match (tls.ca_data.as_str(), tls.ca_file.as_str()) {
                ("", "") => None,
                _ if tls.insecure => {
                    let words =
                        "specifying a root certificates file with the insecure flag is not allowed";
                    return Err(words.to_owned());
                }
                ("", file) => Some(std::fs::read(file).map_err(|error| match error.kind() {
                    ErrorKind::NotFound => format!("open {file}: no such file or directory"),
                    _ => format!("open {file}: {error}"),
                })?),
                (data, _) => Some(STANDARD.decode(data).map_err(|error| error.to_string())?),
            };
            if let Some(pem) = authority {
                server.accept_invalid_certs = false;
                let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem)
                    .map(|one| one.map(|certificate| certificate.to_vec()))
                    .collect();
                server.root_cert = Some(certificates.map_err(|error| error.to_string())?);
            }
            server.tls_server_name = Some(tls.server_name).filter(|name| !name.is_empty());
            let mut identity = json!({});
            for (key, value) in [
                ("client-certificate", tls.cert_file),
                ("client-key", tls.key_file),
                ("client-certificate-data", tls.cert_data),
                ("client-key-data", tls.key_data),
            ] {
                if !value.is_empty() {
                    identity[key] = value.into();
                }
            }
            server.auth_info =
                serde_json::from_value(identity).map_err(|error| error.to_string())?;
        }
        Ok(Self {
            client: kube::Client::try_from(server).map_err(|error| chain(&error))?,
            prefix,
            within: match config.http_timeout.duration() {
                Duration::ZERO => TIMEOUT,
                given => given,
            },
        })
    }

    pub async fn post<T: DeserializeOwned>(
        &self,
        verb: &str,
        body: &impl Serialize,
    ) -> Result<T, String> {
        let url = format!("{}/{verb}", self.prefix);
        let asked = self.send(verb, body, &url);
        match tokio::time::timeout(self.within, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(format!(
                "Post {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            )),
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        verb: &str,
        body: &impl Serialize,
        url: &str,
    ) -> Result<T, String> {
        let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
        let json = HeaderValue::from_static("application/json");
        // The address and its path are the client's to add.
        let request = Request::post(format!("/{verb}"))
            .header(CONTENT_TYPE, json.clone())
            .header(ACCEPT, json)
            .body(Body::from(body))
            .map_err(|error| error.to_string())?;
        let answer = self.client.send(request).await;
        let answer =
            answer.map_err(|error| format!("Post {url:?}: {}", unreachable(&error, url)))?;
        let code = answer.status();
        if code != http::StatusCode::OK {
            return Err(format!(
                "failed {verb} with extender at URL {url}, code {}",
                code.as_u16()
            ));
        }
        let text = answer.into_body().collect().await;
        let text = text
            .map_err(|error| format!("Post {url:?}: {error}"))?
            .to_bytes();
        serde_json::from_slice(&text).map_err(|error| unreadable(&text, &error))
    }
}

/// What is wrong with an answer; of one that is no JSON at all, in the original's words.
fn unreadable(text: &[u8], error: &serde_json::Error) -> String {
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "EOF".to_owned(),
        Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => error.to_string(),
        Some(other) => format!(
            "invalid character '{}' looking for beginning of value",
            char::from(*other)
        ),
    }
}

/// Why nobody could be asked; of an address that refuses, in the original's words.
fn unreachable(error: &(dyn std::error::Error + 'static), url: &str) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let refused = causes
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    let address = url.parse::<http::Uri>().ok();
    let address = address.as_ref().and_then(|uri| {
        let (host, standard) = (
            uri.host()?,
            if uri.scheme_str() == Some("https") {
                443
            } else {
                80
            },
        );
        Some((host, uri.port_u16().unwrap_or(standard)))
    });
    match address {
        // Of a name, the resolved address would be told, which is not known any more.
        Some((host, port))
            if refused
                && host
                    .trim_matches(['[', ']'])
                    .parse::<std::net::IpAddr>()
                    .is_ok() =>
        {
            format!("dial tcp {host}:{port}: connect: connection refused")
        }
        _ => chain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_none() {
        for (text, expected) in [
            (
                " <html>",
                "invalid character '<' looking for beginning of value",
            ),
            (" ", "EOF"),
        ] {
            let error = serde_json::from_str::<serde_json::Value>(text).unwrap_err();
            assert_eq!(unreadable(text.as_bytes(), &error), expected);
        }
    }

    #[test]
    fn an_address_that_refuses() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        for (url, expected) in [
            (
                "http://127.0.0.1:81/x/filter",
                "dial tcp 127.0.0.1:81: connect: connection refused",
            ),
            (
                "https://[::1]/x",
                "dial tcp [::1]:443: connect: connection refused",
            ),
            ("http://name/x", "connection refused"),
        ] {
            assert_eq!(unreachable(&refused, url), expected);
        }
    }
}
