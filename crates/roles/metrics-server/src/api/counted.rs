//! By which labels a request is counted. Those that reached nothing are not, like the original's.

use http::Method;
use http::request::Parts;
use plimsoll_apimachinery::request::{Query, RequestInfo};

use super::aggregated::wants_aggregated;
use super::route::Route;
use super::version::GROUP;
use crate::own::requests::Labels;

pub fn labels(route: &Route, info: &RequestInfo, query: &Query, head: &Parts) -> Option<Labels> {
    let plain = Labels {
        component: "apiserver",
        group: "",
        version: "",
        resource: "",
        subresource: "",
        scope: "",
        verb: verb(&head.method),
    };
    Some(match route {
        Route::List {
            version,
            kind,
            namespace,
        } => Labels {
            group: GROUP,
            version: version.name(),
            resource: kind.resource(),
            scope: match namespace.is_empty() {
                true => "cluster",
                false => "namespace",
            },
            verb: match info.verb {
                "watch" => "WATCH",
                "list" => "LIST",
                _ => plain.verb,
            },
            ..plain
        },
        Route::Get { version, kind, .. } => Labels {
            group: GROUP,
            version: version.name(),
            resource: kind.resource(),
            scope: "resource",
            // It is no watch, but asked for as if it were one.
            verb: match says_watch(query) {
                true => "WATCH",
                false => plain.verb,
            },
            ..plain
        },
        // Only as one document with everything.
        Route::Groups if wants_aggregated(&head.headers).is_some() => Labels {
            subresource: "apis",
            ..plain
        },
        Route::Status => Labels {
            resource: "statusz",
            ..plain
        },
        // Not the checks one by one.
        Route::Health => Labels {
            component: "",
            subresource: match info.path.as_str() {
                "/livez" => "/livez",
                "/readyz" => "/readyz",
                "/healthz" => "/healthz",
                _ => return None,
            },
            ..plain
        },
        _ => return None,
    })
}

/// What Go takes for true, and nothing else.
fn says_watch(query: &Query) -> bool {
    let said = query.get("watch");
    matches!(said, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}
