//! By which labels a request is counted. Those that reached nothing are not, like the original's.

use http::Method;
use plimsoll_ground::rest::request::RequestInfo;

use super::route::Route;
use super::version::GROUP;
use crate::own::requests::Labels;

pub fn labels(route: &Route, info: &RequestInfo, method: &Method) -> Option<Labels> {
    let plain = Labels {
        component: "apiserver",
        group: "",
        version: "",
        resource: "",
        subresource: "",
        scope: "",
        verb: verb(method),
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
        Route::Groups => Labels {
            subresource: "apis",
            ..plain
        },
        Route::Status => Labels {
            resource: "statusz",
            ..plain
        },
        Route::Health => Labels {
            component: "",
            subresource: match info.path.split('/').nth(1) {
                Some("livez") => "/livez",
                Some("readyz") => "/readyz",
                _ => "/healthz",
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
