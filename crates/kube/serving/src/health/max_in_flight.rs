//! Limits the number of requests in flight.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Method, Response, StatusCode, request};
use http_body_util::Full;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::text;
use crate::auth::{MASTERS, UserInfo};

/// Requests are counted by these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    ReadOnly,
    Mutating,
    /// Watches and the like, which last as long as somebody watches: not counted.
    LongRunning,
}

impl Class {
    pub fn of(head: &request::Parts) -> Self {
        let query = head.uri.query().unwrap_or_default();
        let watches = query.split('&').any(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            key == "watch" && !matches!(value, "false" | "0")
        });
        match head.method {
            Method::GET if watches => Self::LongRunning,
            Method::GET | Method::HEAD | Method::OPTIONS => Self::ReadOnly,
            _ => Self::Mutating,
        }
    }
}

/// Counts requests; clones count the same. Those of `system:masters` are never turned away: somebody must be able to
/// look what is wrong.
#[derive(Debug, Clone)]
pub struct InFlight {
    read_only: Option<Arc<Semaphore>>,
    mutating: Option<Arc<Semaphore>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct Permit(#[expect(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Too many requests, please try again later.")]
pub struct TooMany;

impl InFlight {
    /// Zero: without limit.
    pub fn new(read_only: usize, mutating: usize) -> Self {
        let places = |count| (count > 0).then(|| Arc::new(Semaphore::new(count)));
        Self {
            read_only: places(read_only),
            mutating: places(mutating),
        }
    }

    pub fn enter(&self, class: Class, user: &UserInfo) -> Result<Permit, TooMany> {
        let places = match class {
            Class::LongRunning => None,
            Class::ReadOnly => self.read_only.as_ref(),
            Class::Mutating => self.mutating.as_ref(),
        };
        let Some(places) = places else {
            return Ok(Permit(None));
        };
        match Arc::clone(places).try_acquire_owned() {
            Ok(place) => Ok(Permit(Some(place))),
            Err(_) if user.in_group(MASTERS) => Ok(Permit(None)),
            Err(_) => Err(TooMany),
        }
    }
}

impl TooMany {
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let body = format!("{self}\n");
        let mut response = text(StatusCode::TOO_MANY_REQUESTS, body, true);
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn class(method: &str, uri: &str) -> Class {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        Class::of(&request.into_parts().0)
    }

    #[test]
    fn classes() {
        assert_eq!(class("GET", "/api/v1/pods"), Class::ReadOnly);
        assert_eq!(class("HEAD", "/api/v1/pods"), Class::ReadOnly);
        assert_eq!(class("GET", "/api/v1/pods?watch=true"), Class::LongRunning);
        assert_eq!(
            class("GET", "/api/v1/pods?limit=1&watch=1"),
            Class::LongRunning
        );
        assert_eq!(class("GET", "/api/v1/pods?watch=false"), Class::ReadOnly);
        assert_eq!(class("POST", "/api/v1/pods?watch=true"), Class::Mutating);
        assert_eq!(class("DELETE", "/api/v1/pods/x"), Class::Mutating);
    }

    #[test]
    fn too_many_are_turned_away() {
        let limit = InFlight::new(2, 1);
        let user = UserInfo::anonymous();
        let first = limit.enter(Class::ReadOnly, &user).unwrap();
        let _second = limit.enter(Class::ReadOnly, &user).unwrap();
        assert_eq!(
            limit.clone().enter(Class::ReadOnly, &user).unwrap_err(),
            TooMany
        );
        let _other = limit.enter(Class::Mutating, &user).unwrap();
        limit.enter(Class::Mutating, &user).unwrap_err();
        for _ in 0..10 {
            limit.enter(Class::LongRunning, &user).unwrap();
        }
        let root = UserInfo {
            groups: vec![MASTERS.to_owned()],
            ..UserInfo::default()
        };
        limit.enter(Class::ReadOnly, &root).unwrap();
        drop(first);
        limit.enter(Class::ReadOnly, &user).unwrap();
        let none = InFlight::new(0, 0);
        let _all: Vec<_> = (0..1000)
            .map(|_| none.enter(Class::Mutating, &user).unwrap())
            .collect();
    }

    #[test]
    fn the_answer_says_when_to_come_back() {
        let response = TooMany.into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "1");
    }
}
