//! What of an answer is compared.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longer bodies are kept as a digest.
const LONGEST: usize = 4096;

/// Headers that say nothing about the server, or something else each time.
const PASSED_OVER: [&str; 8] = [
    "date",
    "content-length",
    "transfer-encoding",
    "connection",
    "last-modified",
    "accept-ranges",
    "process-start-time-unix",
    "server",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Body {
    Text(String),
    Hex(String),
    Sha256(String),
}

pub fn shown(path: &str, status: u16, headers: &[(String, String)], body: &[u8]) -> Result<Shown> {
    let mut kept = BTreeMap::new();
    for (name, value) in headers {
        if PASSED_OVER.contains(&name.as_str()) {
            continue;
        }
        let value = match name.as_str() {
            "audit-id" | "etag" => "(some)".to_owned(),
            "location" => value.split("hash=").next().unwrap_or_default().to_owned(),
            _ => value.clone(),
        };
        kept.insert(name.clone(), value);
    }
    let mut plain = Vec::new();
    let body = match kept.get("content-encoding").map(String::as_str) {
        Some("gzip") if !body.is_empty() => {
            let mut decoder = GzDecoder::new(body);
            decoder.read_to_end(&mut plain).context("decompress")?;
            plain.as_slice()
        }
        _ => body,
    };
    let body = body_of(path, status, body);
    Ok(Shown {
        status,
        headers: kept,
        body,
    })
}

fn body_of(path: &str, status: u16, body: &[u8]) -> Body {
    let path = path.split('?').next().unwrap_or_default();
    let is_good = status == 200;
    if path.starts_with("/openapi") && is_good && !matches!(body.first(), None | Some(b'{')) {
        let document = super::openapi::without_prose(path, body);
        return Body::Hex(hex(document.as_deref().unwrap_or(body)));
    }
    let Ok(text) = std::str::from_utf8(body) else {
        return Body::Hex(hex(&masked_bytes(body)));
    };
    if body.starts_with(b"k8s\0") {
        return Body::Hex(hex(&masked_bytes(body)));
    }
    Body::Text(match path {
        // For people, and says so.
        "/debug/flags" if is_good => "(prose)".to_owned(),
        "/statusz" if is_good => statusz(text),
        "/metrics" if is_good => families(text),
        "/version" | "/version/" if is_good => version(text),
        _ if path.starts_with("/openapi") && is_good && !text.is_empty() => openapi(text),
        _ => masked_text(text),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// When an object was made is when it was asked for: field 8 of its metadata, a message of eight bytes.
fn masked_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for start in 0..out.len().saturating_sub(10) {
        let is_time =
            out[start..start + 3] == [0x42, 8, 8] && out[start + 8..start + 10] == [0x10, 0];
        if is_time {
            out[start + 3..start + 8].fill(b'_');
        }
    }
    mask_port(&mut out);
    out
}

/// `:12345`, where the server says by which port it is reached.
fn mask_port(bytes: &mut [u8]) {
    for start in 0..bytes.len().saturating_sub(5) {
        let is_port =
            bytes[start] == b':' && bytes[start + 1..start + 6].iter().all(u8::is_ascii_digit);
        if is_port {
            bytes[start + 1..start + 6].fill(b'0');
        }
    }
}

fn masked_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("creationTimestamp") {
        let digits = rest[at..].find(|c: char| c.is_ascii_digit());
        let Some(start) = digits.map(|offset| at + offset) else {
            break;
        };
        let length = rest[start..].find('Z').map_or(0, |end| end + 1);
        out.push_str(&rest[..start]);
        out.push_str("(now)");
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    let mut bytes = out.into_bytes();
    if bytes.windows(13).any(|window| window == b"serverAddress") {
        mask_port(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The server's own families: names, labels, bounds; and which of the general ones dashboards count on are there.
fn families(text: &str) -> String {
    const GENERAL: [&str; 8] = [
        "apiserver_current_inflight_requests",
        "apiserver_request_duration_seconds",
        "apiserver_request_total",
        "apiserver_tls_handshake_errors_total",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    ];
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let name = family.split(' ').next().unwrap_or_default();
            if name.starts_with("metrics_server_") || GENERAL.contains(&name) {
                lines.push(family.to_owned());
            }
        } else if line.starts_with("metrics_server_") {
            let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
            lines.push(series.to_owned());
        }
    }
    lines.join("\n")
}

/// As an object, without what each process has of its own.
fn statusz(text: &str) -> String {
    const OWN: [&str; 3] = ["startTime", "uptimeSeconds", "goVersion"];
    if let Ok(mut value) = serde_json::from_str::<Value>(text) {
        for key in OWN {
            value[key] = "(own)".into();
        }
        return value.to_string();
    }
    if !text.starts_with("apiVersion:") {
        return "(prose)".to_owned();
    }
    let own = |line: &&str| OWN.iter().any(|key| line.starts_with(key));
    let lines: Vec<&str> = text.lines().filter(|line| !own(line)).collect();
    lines.join("\n")
}

/// Each program is of a version of its own.
fn version(text: &str) -> String {
    let mut value: Value = serde_json::from_str(text).unwrap_or_default();
    for key in [
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ] {
        value[key] = "(own)".into();
    }
    value.to_string()
}

/// Takes the prose out, and the fingerprints that depend on it.
pub fn without_descriptions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, inner| !(key == "description" && inner.is_string()));
            map.values_mut().for_each(without_descriptions);
        }
        Value::Array(list) => list.iter_mut().for_each(without_descriptions),
        Value::String(text) => {
            if let Some((path, _)) = text.split_once("?hash=") {
                *text = path.to_owned();
            }
        }
        _ => {}
    }
}

fn openapi(text: &str) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(text) else {
        return text.to_owned();
    };
    without_descriptions(&mut value);
    if value.pointer("/info/version").is_some() {
        value["info"]["version"] = "(own)".into();
    }
    value.to_string()
}

impl Shown {
    /// The original lists containers in any order, and we by name.
    pub fn in_order(&self) -> bool {
        let text = match &self.body {
            Body::Text(text) => text.clone(),
            Body::Hex(digits) => {
                let bytes = digits.as_bytes().chunks(2).filter_map(|pair| {
                    u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
                });
                bytes.map(char::from).collect()
            }
            Body::Sha256(_) => return true,
        };
        let places = ["alpha", "mid", "zeta"].map(|name| text.find(name));
        places.windows(2).all(|pair| pair[0] <= pair[1])
    }

    pub fn shortened(mut self) -> Self {
        let text = match &self.body {
            Body::Text(text) | Body::Hex(text) if text.len() > LONGEST => text,
            _ => return self,
        };
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        self.body = Body::Sha256(hex(digest.as_ref()));
        self
    }

    pub fn difference(&self, found: &Self) -> String {
        let mut out = Vec::new();
        if self.status != found.status {
            out.push(format!("status {} is {}", self.status, found.status));
        }
        if self.headers != found.headers {
            out.push(format!(
                "headers {:?} are {:?}",
                self.headers, found.headers
            ));
        }
        if self.body != found.body {
            out.push(format!("body {:?}\n  is {:?}", self.body, found.body));
        }
        out.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_on_the_moment_is_masked() {
        let json = "{\"creationTimestamp\":\"2026-11-16T03:52:31Z\",\"timestamp\":\"2026-01-01T00:00:15Z\"}";
        assert_eq!(
            masked_text(json),
            "{\"creationTimestamp\":\"(now)\",\"timestamp\":\"2026-01-01T00:00:15Z\"}"
        );
        assert_eq!(
            masked_text("creationTimestamp: null"),
            "creationTimestamp: null"
        );
        let bytes = b"x\x42\x08\x08abcde\x10\x00y";
        assert_eq!(masked_bytes(bytes), b"x\x42\x08\x08_____\x10\x00y");
    }

    #[test]
    fn prose_is_left_out() {
        let text = "{\"description\":\"x\",\"properties\":{\"description\":{\"type\":\"string\"}},\"u\":\"/a?hash=AB\"}";
        assert_eq!(
            openapi(text),
            "{\"properties\":{\"description\":{\"type\":\"string\"}},\"u\":\"/a\"}"
        );
    }
}
