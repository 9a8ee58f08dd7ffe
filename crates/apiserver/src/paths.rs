//! Everything that is no resource: health, version, discovery.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::answer::{self, Answer, Format, full};
use crate::discovery::Catalog;
use crate::request::Query;
use crate::server::Server;
use crate::status::Failure;

const PAGE_NOT_FOUND: &str = "404 page not found\n";

pub fn page_not_found() -> Answer {
    answer::text(StatusCode::NOT_FOUND, PAGE_NOT_FOUND)
}

impl Server {
    /// `None`: there is nothing at this path.
    pub fn other_path(
        &self,
        method: &Method,
        path: &str,
        query: &Query,
        headers: &HeaderMap,
    ) -> Answer {
        let trimmed = path.trim_end_matches('/');
        let parts: Vec<&str> = trimmed.split('/').skip(1).collect();
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => return self.health(&parts, query),
            ["api" | "apis", ..] | ["version"] | [] => {}
            _ => return page_not_found(),
        }
        if *method != Method::GET && *method != Method::HEAD {
            return answer::failure(&Failure::method_not_supported(), &Format::JSON);
        }
        if matches!(parts.as_slice(), ["api" | "apis"])
            && let Some(version) = wants_aggregated(headers)
        {
            return self.aggregated_discovery(parts[0] == "api", version, headers);
        }
        let format = match Format::negotiate(headers, query.get("pretty"), false) {
            Ok(format) => format,
            Err(refused) => return answer::failure(&refused, &Format::JSON),
        };
        let found = match parts.as_slice() {
            [] => Some(self.all_paths()),
            ["version"] => Some(version()),
            _ => self.discovery(&parts, headers),
        };
        match found {
            Some(value) => answer::json(StatusCode::OK, &value, &format),
            // Another version of a group that is there is not the same as nothing.
            None if is_version(&parts) && self.catalogue().has_group(group_of(&parts)) => {
                answer::failure(&Failure::no_such_resource(), &format)
            }
            None => page_not_found(),
        }
    }

    fn discovery(&self, parts: &[&str], headers: &HeaderMap) -> Option<Value> {
        let catalogue = self.catalogue();
        let remotes = self.aggregator().described();
        let resources = catalogue.resources().iter().map(AsRef::as_ref);
        let catalog = Catalog::new(resources, remotes.iter());
        match parts {
            ["api"] => {
                let host = headers
                    .get(header::HOST)
                    .and_then(|host| host.to_str().ok())
                    .unwrap_or("127.0.0.1:6443");
                Some(catalog.api_versions(host))
            }
            ["api", version] => catalog.resource_list("", version),
            ["apis"] => Some(catalog.group_list()),
            ["apis", group] => catalog.group_document(group),
            ["apis", group, version] => catalog.resource_list(group, version),
            _ => None,
        }
    }

    fn aggregated_discovery(
        &self,
        core: bool,
        version: &'static str,
        headers: &HeaderMap,
    ) -> Answer {
        let catalogue = self.catalogue();
        let remotes = self.aggregator().described();
        let resources = catalogue.resources().iter().map(AsRef::as_ref);
        let catalog = Catalog::new(resources, remotes.iter());
        let tagged = catalog.aggregated(core, version);
        let known = headers
            .get(header::IF_NONE_MATCH)
            .is_some_and(|tag| tag.as_bytes() == tagged.etag.as_bytes());
        let media = match version {
            "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        };
        let mut response = if known {
            answer::answer(StatusCode::NOT_MODIFIED, media, full(""))
        } else {
            answer::answer(StatusCode::OK, media, full(tagged.body))
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        if let Ok(tag) = HeaderValue::from_str(&tagged.etag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }

    fn all_paths(&self) -> Value {
        let mut paths = vec![
            "/.well-known/openid-configuration".to_owned(),
            "/api".to_owned(),
        ];
        paths.push("/api/v1".to_owned());
        paths.push("/apis".to_owned());
        paths.push("/apis/".to_owned());
        for resource in self.catalogue().resources() {
            if !resource.group.is_empty() {
                paths.push(format!("/apis/{}", resource.group));
                paths.push(format!("/apis/{}/{}", resource.group, resource.version));
            }
        }
        for remote in self.aggregator().described().iter() {
            paths.push(format!("/apis/{}", remote.group));
            paths.push(format!("/apis/{}/{}", remote.group, remote.version));
        }
        for path in [
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ] {
            paths.push(path.to_owned());
        }
        paths.sort();
        paths.dedup();
        json!({"paths": paths})
    }

    fn health(&self, parts: &[&str], query: &Query) -> Answer {
        let name = parts[0];
        let checks: &[&str] = &["ping", "store"];
        match parts {
            [_] if query.get("verbose").is_some() || query.flag("verbose") => {
                let excluded: Vec<&str> = query.all("exclude").collect();
                let mut text = String::new();
                for check in checks {
                    let outcome = if excluded.contains(check) {
                        "excluded: ok"
                    } else {
                        "ok"
                    };
                    text.push_str(&format!("[+]{check} {outcome}\n"));
                }
                text.push_str(&format!("{name} check passed\n"));
                answer::text(StatusCode::OK, text)
            }
            [_] => answer::text(StatusCode::OK, "ok"),
            [_, check] if checks.contains(check) => answer::text(StatusCode::OK, "ok"),
            _ => page_not_found(),
        }
    }
}

fn is_version(parts: &[&str]) -> bool {
    matches!(parts, ["api", _] | ["apis", _, _])
}

fn group_of<'a>(parts: &[&'a str]) -> &'a str {
    match parts {
        ["apis", group, ..] => group,
        _ => "",
    }
}

/// The version of aggregated discovery that the client would rather have.
fn wants_aggregated(headers: &HeaderMap) -> Option<&'static str> {
    let accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    for one in accepted {
        let parts: Vec<&str> = one.split(';').map(str::trim).collect();
        let is_json = matches!(parts.first(), Some(&"application/json" | &"*/*"));
        let discovery =
            parts.contains(&"g=apidiscovery.k8s.io") && parts.contains(&"as=APIGroupDiscoveryList");
        match (is_json, discovery) {
            (true, true) if parts.contains(&"v=v2") => return Some("v2"),
            (true, true) if parts.contains(&"v=v2beta1") => return Some("v2beta1"),
            (true, false) => return None,
            _ => {}
        }
    }
    None
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.3+plimsoll",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
