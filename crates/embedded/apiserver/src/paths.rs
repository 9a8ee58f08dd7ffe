//! Everything that is no resource: health, version, discovery.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use plimsoll_golang::platform::own_goarch;
use serde_json::{Value, json};

use crate::answer::{self, Answer, Format, Offer, full};
use crate::auth::DEFAULT_ISSUER;
use crate::discovery::Catalog;
use crate::request::Query;
use crate::server::Server;
use crate::status::StatusError;

const PAGE_NOT_FOUND: &str = "404 page not found\n";

const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// Go cannot read its own name for it in an answer.
const OPENAPI_PROTOBUF_ANSWER: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const KEY_SET: &str = "application/jwk-set+json";

/// Whether a media type is among those that the client wants, which are all if it does not say.
fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let Some(wanted) = headers.get(header::ACCEPT) else {
        return true;
    };
    let wanted = wanted.to_str().unwrap_or_default().split(',');
    wanted
        .filter_map(|one| one.split(';').next())
        .any(|one| ["*/*", media].contains(&one.trim()))
}

pub fn page_not_found() -> Answer {
    answer::text(StatusCode::NOT_FOUND, PAGE_NOT_FOUND)
}

/// What OpenAPI 3 says where it has nothing: nothing but the number.
fn no_document() -> Answer {
    let mut response = answer::text(StatusCode::NOT_FOUND, "");
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

fn is_builtin(group: &str) -> bool {
    crate::resource::builtin()
        .iter()
        .any(|one| one.group == group)
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
        let goes_on = path.ends_with('/');
        match parts.as_slice() {
            ["api" | "apis", ..] | ["version"] | [] => {}
            [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"] => {}
            ["openapi", "v3", ..] if goes_on => return no_document(),
            _ if goes_on => return page_not_found(),
            ["healthz" | "livez" | "readyz", ..] => return self.health(&parts, query),
            ["openapi", "v2"] | ["openapi", "v3", ..] => return self.openapi_path(&parts, headers),
            ["metrics"] => return answer::text(StatusCode::OK, self.metrics()),
            _ => return page_not_found(),
        }
        // Whoever tells what groups there are does not ask how.
        let any_method = matches!(parts.as_slice(), [] | ["apis"] | ["apis", _]);
        if *method != Method::GET && !any_method {
            return answer::failure(&StatusError::method_not_supported(), &Format::JSON);
        }
        if matches!(parts[..], [".well-known", ..] | ["openid", ..]) {
            return self.openid(&parts, headers);
        }
        if matches!(parts.as_slice(), ["api" | "apis"])
            && let Some(version) = wants_aggregated(headers)
        {
            return self.aggregated_discovery(parts[0] == "api", version, headers);
        }
        let pretty = query.get("pretty");
        let offer = Offer {
            only_json: parts == ["version"],
            ..Offer::default()
        };
        let format = match Format::negotiate(headers, pretty, offer) {
            Ok(format) => format,
            Err(refused) => {
                let format = Format::of_refusal(headers, pretty, offer).unwrap_or(Format::JSON);
                return answer::failure(&refused, &format);
            }
        };
        let found = match parts.as_slice() {
            [] => Some(self.all_paths()),
            ["version"] => Some(version()),
            _ => self.discovery(&parts, headers),
        };
        match found {
            Some(value) => answer::json(StatusCode::OK, &value, &format),
            // Another version of a group that is there is not the same as nothing.
            None if is_version(&parts) && is_builtin(group_of(&parts)) => {
                answer::failure(&StatusError::no_such_resource(), &format)
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
        let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
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

    fn openid(&self, parts: &[&str], headers: &HeaderMap) -> Answer {
        let (media, document) = match parts {
            [".well-known", ..] => (
                "application/json",
                json!({
                    "issuer": DEFAULT_ISSUER,
                    "jwks_uri": format!("{DEFAULT_ISSUER}/openid/v1/jwks"),
                    "response_types_supported": ["id_token"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["ES256"],
                }),
            ),
            _ if !accepts(headers, KEY_SET) => {
                let refused = StatusError::new(
                    StatusCode::NOT_ACCEPTABLE,
                    "NotAcceptable",
                    format!("406: Not Acceptable\n\nAvailable representations: {KEY_SET}"),
                );
                let refused = refused.with_details(serde_json::Map::new());
                return answer::failure(&refused, &Format::JSON);
            }
            _ => (KEY_SET, self.authority().public_keys()),
        };
        answer::answer(StatusCode::OK, media, full(document.to_string()))
    }

    fn openapi_path(&self, parts: &[&str], headers: &HeaderMap) -> Answer {
        let catalogue = self.catalogue();
        let definitions = catalogue.definitions();
        let accepts = headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if parts == ["openapi", "v2"] && accepts.starts_with(OPENAPI_PROTOBUF) {
            let body = self.openapi().v2_protobuf(definitions);
            return answer::answer(StatusCode::OK, OPENAPI_PROTOBUF_ANSWER, full(body));
        }
        let packed = match parts {
            ["openapi", "v3"] => {
                let index = self.openapi().index(definitions).to_string();
                return answer::text(StatusCode::OK, index);
            }
            ["openapi", "v2"] => Some(self.openapi().v2(definitions)),
            ["openapi", "v3", rest @ ..] => self.openapi().v3(&rest.join("/"), definitions),
            _ => None,
        };
        let Some(packed) = packed else {
            return no_document();
        };
        let takes_gzip = headers
            .get_all(header::ACCEPT_ENCODING)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.contains("gzip"));
        let etag = format!("\"{}\"", packed.hash);
        let known = headers
            .get(header::IF_NONE_MATCH)
            .is_some_and(|tag| tag.as_bytes() == etag.as_bytes());
        let mut response = if known {
            answer::answer(StatusCode::NOT_MODIFIED, "application/json", full(""))
        } else if takes_gzip {
            answer::answer(
                StatusCode::OK,
                "application/json",
                full(packed.gzip.clone()),
            )
        } else {
            answer::answer(StatusCode::OK, "application/json", full(packed.plain()))
        };
        let out = response.headers_mut();
        if takes_gzip && !known {
            out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        out.insert(
            header::VARY,
            HeaderValue::from_static("Accept-Encoding, Accept"),
        );
        out.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=31536000"),
        );
        if let Ok(tag) = HeaderValue::from_str(&etag) {
            out.insert(header::ETAG, tag);
        }
        response
    }

    /// How many objects there are of each resource.
    fn metrics(&self) -> String {
        let mut text = String::from(
            "# HELP apiserver_resource_objects Number of stored objects at the time of last check split by kind.\n# TYPE apiserver_resource_objects gauge\n",
        );
        let mut seen: Vec<(String, String)> = self
            .catalogue()
            .all()
            .map(|served| {
                (
                    served.resource.plural.clone(),
                    served.resource.group.clone(),
                )
            })
            .collect();
        seen.sort();
        seen.dedup();
        for (resource, group) in seen {
            let shelf = if group.is_empty() {
                resource.clone()
            } else {
                format!("{resource}.{group}")
            };
            let count = self.store().count(&shelf);
            text.push_str(&format!(
                "apiserver_resource_objects{{group=\"{group}\",resource=\"{resource}\"}} {count}\n"
            ));
        }
        text.push_str(&format!(
            "# TYPE plimsoll_task_restarts_total counter\nplimsoll_task_restarts_total {}\n",
            self.task_restarts()
        ));
        let counters = self.counters();
        for (name, kind, count) in [
            ("plimsoll_http_panics_total", "counter", counters.panics()),
            (
                "plimsoll_http_refused_for_others_total",
                "counter",
                counters.refused_for_others(),
            ),
            (
                "plimsoll_http_connections_total",
                "counter",
                counters.connections(),
            ),
            (
                "plimsoll_http_connections_open",
                "gauge",
                counters.open_connections(),
            ),
        ] {
            text.push_str(&format!("# TYPE {name} {kind}\n{name} {count}\n"));
        }
        text.push_str(&self.more_metrics());
        text
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
        match parts {
            [_] => {
                let excluded: Vec<&str> = query.all("exclude").collect();
                let mut text = String::new();
                let mut passed = true;
                // Only told of when there is something to tell: a real server has no such check.
                let down = (name != "livez" && self.trouble(TASKS).is_some()).then_some(TASKS);
                for check in CHECKS.into_iter().chain(down) {
                    let outcome = if excluded.contains(&check) {
                        "[+]{} excluded: ok"
                    } else if self.trouble(check).is_none() {
                        "[+]{} ok"
                    } else {
                        passed = false;
                        "[-]{} failed: reason withheld"
                    };
                    text.push_str(&outcome.replace("{}", check));
                    text.push('\n');
                }
                if !passed {
                    text.push_str(&format!("{name} check failed\n"));
                    return answer::text(StatusCode::INTERNAL_SERVER_ERROR, text);
                }
                if query.get("verbose").is_none() && !query.flag("verbose") {
                    return answer::text(StatusCode::OK, "ok");
                }
                text.push_str(&format!("{name} check passed\n"));
                answer::text(StatusCode::OK, text)
            }
            [_, check] if CHECKS.contains(check) || *check == TASKS => match self.trouble(check) {
                None => answer::text(StatusCode::OK, "ok"),
                Some(why) => answer::text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("internal server error: {why}\n"),
                ),
            },
            _ => page_not_found(),
        }
    }

    /// What is wrong with what a check is about.
    fn trouble(&self, check: &str) -> Option<String> {
        match check {
            "etcd" => self.store().trouble(),
            TASKS => {
                let down = self.tasks_down();
                let told = || format!("tasks that panicked: {}", down.join(", "));
                (!down.is_empty()).then(told)
            }
            _ => None,
        }
    }
}

/// Whether the server's own tasks work.
const TASKS: &str = "tasks";
/// What probes ask about. The store stands where a real server has etcd.
const CHECKS: [&str; 3] = ["ping", "log", "etcd"];

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
        "platform": format!("{}/{}", std::env::consts::OS, own_goarch()),
    })
}
