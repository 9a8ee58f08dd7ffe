//! `/statusz`: what the server is and since when, in words for people, and as an object for those who ask for one.

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use plimsoll_apimachinery::accept;
use plimsoll_apimachinery::accept::Clause;
use plimsoll_apimachinery::answer;
use plimsoll_apimachinery::answer::{Answer, Encoding, Format, full};
use plimsoll_apimachinery::status::StatusError;
use serde::Serialize;

use super::about;

const GROUP: &str = "config.k8s.io";
const KIND: &str = "Statusz";
const OLD: &str = "v1alpha1";
const CURRENT: &str = "v1beta1";
const PATHS: [&str; 5] = ["/healthz", "/livez", "/metrics", "/readyz", "/version"];

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Statusz {
    kind: &'static str,
    api_version: String,
    metadata: Named,
    start_time: String,
    uptime_seconds: i64,
    go_version: &'static str,
    binary_version: String,
    emulation_version: String,
    paths: [&'static str; 5],
}

#[derive(Debug, Serialize)]
struct Named {
    name: &'static str,
}

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Text,
    Object(Encoding, &'static str),
}

impl Wanted {
    /// `None`: it cannot be had.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let accept = accept::header(headers);
        if accept.trim().is_empty() {
            return Some(Self::Text);
        }
        accept::clauses(accept).iter().find_map(Self::by)
    }

    fn by(clause: &Clause<'_>) -> Option<Self> {
        let given = |name| clause.parameter(name);
        if !given("stream").is_empty() || !given("sv").is_empty() {
            return None;
        }
        let form = [given("g"), given("as")];
        let version = [OLD, CURRENT]
            .into_iter()
            .find(|known| *known == given("v"));
        let encoding = [Encoding::Json, Encoding::Yaml]
            .into_iter()
            .find(|one| clause.takes(one.content_type()));
        match (encoding, version) {
            (Some(encoding), Some(version)) if form == [GROUP, KIND] => {
                Some(Self::Object(encoding, version))
            }
            _ => {
                let plain = form == ["", ""] && given("v").is_empty();
                (plain && clause.takes("text/plain")).then_some(Self::Text)
            }
        }
    }
}

pub fn answer(
    started: jiff::Timestamp,
    headers: &HeaderMap,
    pretty: bool,
) -> Result<Answer, StatusError> {
    let types = "application/json, application/yaml, text/plain";
    let wanted = Wanted::of(headers).ok_or_else(|| answer::only_accepted(types))?;
    let now = jiff::Timestamp::now();
    let up = now.duration_since(started).as_secs().max(0);
    Ok(match wanted {
        Wanted::Text => text(started, up),
        Wanted::Object(encoding, version) => object(started, up, encoding, version, pretty),
    })
}

fn object(
    started: jiff::Timestamp,
    up: i64,
    encoding: Encoding,
    version: &str,
    pretty: bool,
) -> Answer {
    let release = about::release();
    let format = Format {
        encoding,
        pretty,
        ..Format::JSON
    };
    let status = Statusz {
        kind: KIND,
        api_version: format!("{GROUP}/{version}"),
        metadata: Named { name: "apiserver" },
        start_time: started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        uptime_seconds: up,
        go_version: "",
        binary_version: release.clone(),
        emulation_version: release,
        paths: PATHS,
    };
    let mut response = answer::json(StatusCode::OK, &status, &format);
    let kind = format!(
        "{};g={GROUP};v={version};as={KIND}",
        encoding.content_type()
    );
    if let Ok(kind) = HeaderValue::from_str(&kind) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    if version == OLD {
        let warning =
            "This version of the statusz endpoint is deprecated. Please use a newer version.";
        answer::add_warnings(&mut response, &[warning.to_owned()]);
    }
    response
}

fn text(started: jiff::Timestamp, up: i64) -> Answer {
    let text = format!(
        "\nplimsoll metrics-server statusz\nFor people; programs read /metrics.\n\n\
         Started: {}\nUp: {} hr {:02} min {:02} sec\nBinary version: {}\n\nPaths: {}\n",
        started.strftime("%a %b %e %H:%M:%S UTC %Y"),
        up / 3600,
        up / 60 % 60,
        up % 60,
        about::VERSION,
        PATHS.join(" "),
    );
    let kind = "text/plain; charset=utf-8";
    answer::answer(StatusCode::OK, kind, full(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_what() {
        let form = "v=v1beta1;g=config.k8s.io;as=Statusz";
        let json = format!("application/json;{form}");
        let yaml = format!("application/yaml;{form}");
        let anything = format!("*/*;{form}");
        let text = format!("text/plain;{form}");
        let object = |encoding| Some(Wanted::Object(encoding, CURRENT));
        for (accept, expected) in [
            ("", Some(Wanted::Text)),
            ("*/*", Some(Wanted::Text)),
            ("text/*", Some(Wanted::Text)),
            ("application/json, text/plain;q=0.1", Some(Wanted::Text)),
            (json.as_str(), object(Encoding::Json)),
            (yaml.as_str(), object(Encoding::Yaml)),
            (anything.as_str(), object(Encoding::Json)),
            (text.as_str(), None),
            ("application/json", None),
            ("application/json;v=v1;g=config.k8s.io;as=Statusz", None),
        ] {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.insert(header::ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(Wanted::of(&headers), expected, "{accept}");
        }
    }

    #[test]
    fn an_object_says_what_it_is() {
        let started = jiff::Timestamp::from_second(1_767_225_600).unwrap();
        let response = object(started, 5, Encoding::Yaml, OLD, false);
        let headers = response.headers();
        assert_eq!(
            headers[header::CONTENT_TYPE],
            "application/yaml;g=config.k8s.io;v=v1alpha1;as=Statusz"
        );
        assert!(headers.contains_key(header::WARNING));
    }
}
