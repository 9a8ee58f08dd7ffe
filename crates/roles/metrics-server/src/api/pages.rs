//! Pages that are no resources: the index, what the server is doing, OpenAPI.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use plimsoll_apimachinery::accept;
use plimsoll_apimachinery::answer;
use plimsoll_apimachinery::answer::{Answer, full};
use plimsoll_apimachinery::request::Query;
use plimsoll_metrics::negotiate;
use plimsoll_metrics::to_delimited_protobuf;
use plimsoll_serving::health::Health;
use serde_json::json;

use super::about;
use super::content::Content;
use super::list::{accepts_gzip, mark_compressed};
use super::openapi::{OpenApi, Published};
use super::past;
use super::route::Debug;
use super::verbosity;
use super::version::{Announced, GROUP};

const JSON: &str = "application/json";
/// OpenAPI in protobuf; it may be asked for by either name, and is sent by the second.
const OPENAPI_2: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];
const OPENAPI_3: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
];

/// Every path there is, for those who ask for none of them.
pub fn paths(announced: Announced, health: &Health) -> String {
    let mut paths = vec!["/apis".to_owned(), format!("/apis/{GROUP}")];
    for version in announced.versions() {
        paths.push(format!("/apis/{}", version.api_version()));
    }
    if announced.past {
        paths.push(format!("/apis/{}", past::GROUP));
        paths.push(format!("/apis/{}", past::API_VERSION));
    }
    paths.extend(health.paths());
    for other in [
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/statusz",
        "/version",
    ] {
        paths.push(other.to_owned());
    }
    paths.sort();
    serde_json::to_string_pretty(&json!({ "paths": paths })).unwrap_or_default()
}

pub fn index(code: StatusCode, paths: &str) -> Answer {
    answer::answer(code, "application/json", full(paths.to_owned()))
}

pub fn version() -> Answer {
    let text = serde_json::to_vec_pretty(&about::about()).unwrap_or_default();
    answer::answer(StatusCode::OK, "application/json", full(text))
}

/// A document that clients keep, by the fingerprint that it has in every format.
fn published(
    (openapi, hash): (&OpenApi, &str),
    body: Bytes,
    kind: &'static str,
    method: &Method,
    headers: &HeaderMap,
) -> Answer {
    let content = Content {
        etag: &format!("\"{hash}\""),
        modified: openapi.made,
        kind,
        body,
    };
    content.answer(method, headers)
}

/// The first media type that is wanted and can be had; `None`: none of them can.
fn acceptable<'a>(headers: &'a HeaderMap, offered: &[&'a str]) -> Option<&'a str> {
    let accept = match accept::header(headers) {
        "" => "*/*",
        said => said,
    };
    accept::clauses(accept).iter().find_map(|clause| {
        offered
            .iter()
            .copied()
            .find(|one| clause.takes_loosely(one))
    })
}

fn unacceptable() -> Answer {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
    response
}

/// The format that is wanted; `None`: there is no such.
fn represented<'a>(
    document: &'a Published,
    protobuf: [&'static str; 2],
    headers: &HeaderMap,
) -> Option<(&'a Bytes, &'static str)> {
    let [name, safe] = protobuf;
    match acceptable(headers, &[JSON, name, safe])? {
        JSON => Some((&document.body, JSON)),
        _ => Some((&document.protobuf, safe)),
    }
}

/// One document for everything. It is compressed whatever its size.
pub fn openapi_2(openapi: &OpenApi, method: &Method, headers: &HeaderMap) -> Answer {
    let document = &openapi.v2;
    let mut response = match represented(document, OPENAPI_2, headers) {
        None => unacceptable(),
        Some((body, kind)) => {
            let of = (openapi, document.hash.as_str());
            let mut response = published(of, body.clone(), kind, method, headers);
            // Parts of it are small, and sent as they are.
            if reads_gzip(headers) && response.status() == StatusCode::OK {
                *response.body_mut() = full(packed(body));
                mark_compressed(response.headers_mut());
            }
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.append(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Not as for lists, where the very word has to be said.
fn reads_gzip(headers: &HeaderMap) -> bool {
    let said = headers.get(header::ACCEPT_ENCODING);
    let said = said.and_then(|value| value.to_str().ok());
    said.unwrap_or_default().split(',').any(|one| {
        let (name, how) = one.split_once(';').unwrap_or((one, ""));
        let much = how.trim().strip_prefix("q=").map(str::parse);
        let much = much.and_then(Result::ok).unwrap_or(1.0_f64);
        name.trim().eq_ignore_ascii_case("gzip") && much > 0.0
    })
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Memory takes whatever is written.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

pub fn openapi_3(openapi: &OpenApi, method: &Method, headers: &HeaderMap) -> Answer {
    let index = &openapi.index;
    let of = (openapi, index.hash.as_str());
    published(of, index.body.clone(), JSON, method, headers)
}

/// The document of a group and version; one that is not there has nothing in it.
pub fn openapi_3_of(
    openapi: &OpenApi,
    part: &str,
    query: &Query,
    method: &Method,
    headers: &HeaderMap,
) -> Answer {
    let Some(document) = openapi.v3(part) else {
        // Even that can be wanted in a format that there is not.
        return match represented(&openapi.index, OPENAPI_3, headers) {
            Some(_) => Response::new(full("")),
            None => {
                let mut response = unacceptable();
                let accept = HeaderValue::from_static("Accept");
                response.headers_mut().insert(header::VARY, accept);
                response
            }
        };
    };
    let mut response = match represented(document, OPENAPI_3, headers) {
        None => unacceptable(),
        Some((body, kind)) => match query.get("hash") {
            Some(hash) if hash != document.hash => moved(part, &document.hash, kind),
            hash => {
                let of = (openapi, document.hash.as_str());
                let mut response = published(of, body.clone(), kind, method, headers);
                if hash.is_some() {
                    let forever = HeaderValue::from_static("public, immutable");
                    let headers = response.headers_mut();
                    headers.insert(header::CACHE_CONTROL, forever);
                }
                response
            }
        },
    };
    let accept = HeaderValue::from_static("Accept");
    response.headers_mut().insert(header::VARY, accept);
    response
}

/// It has another fingerprint now.
fn moved(part: &str, hash: &str, kind: &'static str) -> Answer {
    let mut response = answer::answer(StatusCode::MOVED_PERMANENTLY, kind, full(""));
    let headers = response.headers_mut();
    let there = format!("/openapi/v3/{part}?hash={hash}");
    for (name, text) in [
        (header::LOCATION, there),
        (header::ETAG, format!("\"{hash}\"")),
    ] {
        if let Ok(text) = HeaderValue::from_str(&text) {
            headers.insert(name, text);
        }
    }
    response
}

/// Its own metrics. They are compressed whatever their size.
pub fn metrics(text: String, started: Option<f64>, headers: &HeaderMap) -> Answer {
    let format = negotiate::Format::wanted(headers);
    let body = match format.form {
        negotiate::Form::Delimited => to_delimited_protobuf(text.as_bytes()),
        negotiate::Form::Text => text.into_bytes(),
    };
    let kind = "text/plain";
    let mut response = if accepts_gzip(headers) {
        let mut response = answer::answer(StatusCode::OK, kind, full(packed(&body)));
        mark_compressed(response.headers_mut());
        response.headers_mut().remove(header::VARY);
        response
    } else {
        answer::answer(StatusCode::OK, kind, full(body))
    };
    if let Ok(kind) = HeaderValue::from_str(&format.content_type()) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    if let Some(started) = started {
        response.headers_mut().insert(
            HeaderName::from_static("process-start-time-unix"),
            HeaderValue::from(started as u64),
        );
    }
    response
}

/// The original's doors to its innards. There is no Go runtime to look into here, and profilers need no help.
pub fn debug(debug: &Debug) -> Answer {
    match debug {
        Debug::ProfilesElsewhere => {
            let text = "<a href=\"/debug/pprof/\">Found</a>.\n\n";
            let kind = "text/html; charset=utf-8";
            let mut response = answer::answer(StatusCode::FOUND, kind, full(text));
            let there = HeaderValue::from_static("/debug/pprof/");
            response.headers_mut().insert(header::LOCATION, there);
            response
        }
        Debug::Profiles => {
            let text = "<html><body>no profiles: use perf on the process</body></html>\n";
            let kind = "text/html; charset=utf-8";
            let mut response = answer::answer(StatusCode::OK, kind, full(text));
            let nosniff = HeaderValue::from_static("nosniff");
            let headers = response.headers_mut();
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
            response
        }
        // Whoever resolves addresses asks first whether anybody can.
        Debug::Profile(name) if name == "symbol" => {
            answer::text(StatusCode::OK, "num_symbols: 1\n")
        }
        Debug::Profile(_) => {
            let mut response = answer::text(StatusCode::NOT_FOUND, "Unknown profile\n");
            let headers = response.headers_mut();
            headers.insert("x-go-pprof", HeaderValue::from_static("1"));
            response
        }
        Debug::Flags => answer::answer(
            StatusCode::OK,
            "text/html; charset=utf-8",
            full("<html><body>/debug/flags/v</body></html>\n"),
        ),
        Debug::Verbosity => {
            verbosity::answer(StatusCode::NOT_ACCEPTABLE, "unsupported http method")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_are_not_there() {
        let openapi = OpenApi::new(Announced::default());
        for (accept, expected) in [("*/*", 200), ("application/yaml", 406)] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            let query = Query::parse("");
            let response = openapi_3_of(&openapi, "x", &query, &Method::GET, &headers);
            assert_eq!(response.status(), expected, "{accept}");
        }
    }
}
