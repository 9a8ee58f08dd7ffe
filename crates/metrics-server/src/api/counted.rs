//! By which labels a request is counted. Those that reached nothing are not, like the original's.

use http::Method;
use http::request::Parts;
use plimsoll_ground::rest::request::RequestInfo;

use super::aggregated::wants_aggregated;
use super::route::Route;
use super::version::GROUP;
use crate::own::requests::Labels;

pub fn labels(route: &Route, info: &RequestInfo, head: &Parts) -> Option<Labels> {
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

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        _ => "other",
    }
}
