//! Pages for people who look for what is wrong: with which flags it runs, since when, and what else it serves.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::ACCEPT;
use serde_json::{Value, json};

/// How somebody wants a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Text,
    /// With the version that was asked for.
    Json(&'static str),
    /// Nothing that is asked for can be had.
    None,
}

impl Shape {
    /// `kind`: `Flagz` or `Statusz`.
    pub fn asked(headers: &HeaderMap, kind: &str) -> Self {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let accept = accept.unwrap_or_default().trim();
        if accept.is_empty() {
            return Self::Text;
        }
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters: BTreeMap<&str, &str> =
                parts.filter_map(|part| part.split_once('=')).collect();
            let named = |name: &str| parameters.get(name).copied();
            match media {
                "text/plain" | "text/*" | "*/*" => return Self::Text,
                "application/json"
                    if named("as") == Some(kind) && named("g") == Some("config.k8s.io") =>
                {
                    match named("v") {
                        Some("v1beta1") => return Self::Json("v1beta1"),
                        Some("v1alpha1") => return Self::Json("v1alpha1"),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        Self::None
    }
}

fn object(kind: &str, version: &str) -> Value {
    json!({
        "kind": kind,
        "apiVersion": format!("config.k8s.io/{version}"),
        "metadata": {"name": "kube-scheduler"},
    })
}

pub fn flags_json(flags: &BTreeMap<String, String>, version: &str) -> Value {
    let mut page = object("Flagz", version);
    page["flags"] = json!(flags);
    page
}

pub fn flags_text(flags: &BTreeMap<String, String>) -> String {
    let mut page = "\nkube-scheduler flagz\nFor people; programs ask for JSON.\n\n".to_owned();
    for (name, value) in flags {
        page.push_str(&format!("{name}={value}\n"));
    }
    page
}

/// What there is to say about the process.
#[derive(Debug, Clone)]
pub struct Standing {
    pub started: jiff::Timestamp,
    pub up: i64,
    pub paths: Vec<String>,
}

/// Ours, with what of Kubernetes it is like.
pub fn binary_version() -> String {
    format!("1.36.3+plimsoll-{}", env!("CARGO_PKG_VERSION"))
}

impl Standing {
    pub fn now(started: jiff::Timestamp, mut paths: Vec<String>) -> Self {
        let up = jiff::Timestamp::now().duration_since(started).as_secs();
        paths.sort();
        paths.dedup();
        Self {
            started,
            up: up.max(0),
            paths,
        }
    }

    pub fn json(&self, version: &str) -> Value {
        let mut page = object("Statusz", version);
        page["startTime"] = json!(self.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        page["uptimeSeconds"] = json!(self.up);
        // There is no Go in it; the field has to be there.
        page["goVersion"] = json!("");
        page["binaryVersion"] = json!(binary_version());
        page["emulationVersion"] = json!("1.36");
        page["paths"] = json!(self.paths);
        page
    }

    pub fn text(&self) -> String {
        let up = self.up;
        format!(
            "\nkube-scheduler statusz\nFor people; programs ask for JSON.\n\nStarted: {}\n\
             Up: {} hr {:02} min {:02} sec\nBinary version: {}\nEmulation version: 1.36\nPaths: {}\n",
            self.started.strftime("%a %b %e %H:%M:%S UTC %Y"),
            up / 3600,
            up / 60 % 60,
            up % 60,
            binary_version(),
            self.paths.join(" ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let check = |accept: &str, expected: Shape| {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.insert(ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(Shape::asked(&headers, "Flagz"), expected, "{accept}");
        };
        check("", Shape::Text);
        check("*/*", Shape::Text);
        check("text/plain", Shape::Text);
        check("application/json", Shape::None);
        check(
            "application/json;as=Flagz;v=v1beta1;g=config.k8s.io",
            Shape::Json("v1beta1"),
        );
        check(
            "application/json;as=Statusz;v=v1beta1;g=config.k8s.io, text/plain",
            Shape::Text,
        );
    }

    #[test]
    fn what_they_say() {
        let flags = BTreeMap::from([("v".to_owned(), "2".to_owned())]);
        assert!(flags_text(&flags).ends_with("\nv=2\n"));
        assert_eq!(flags_json(&flags, "v1beta1")["flags"]["v"], "2");
        let started = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let standing = Standing {
            started,
            up: 3723,
            paths: vec!["/metrics".to_owned()],
        };
        assert!(standing.text().contains("\nUp: 1 hr 02 min 03 sec\n"));
        assert_eq!(
            standing.json("v1beta1")["startTime"],
            "2027-01-15T08:00:00Z"
        );
    }
}
