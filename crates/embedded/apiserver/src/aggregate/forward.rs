//! Handing a request on to the server that answers for it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::{Body as HttpBody, Incoming};
use plimsoll_apimachinery::answer::not_to_be_kept;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_serving::Peer;
use plimsoll_serving::auth::Impersonation;

use super::Remote;
use super::backend::{BoxError, ReachError};
use super::resolve::Address;
use crate::answer::{self, Answer, full};
use crate::auth::{User, front_proxy};
use crate::paths::page_not_found;
use crate::server::Server;

/// For an answer to begin; how long it then takes is the server's affair, watches end when they end.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What is between two ends of a connection only.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

impl Server {
    /// The other server's answer; the user is known and was found to be allowed to ask.
    pub(crate) async fn forward<B>(
        &self,
        remote: &Remote,
        user: &User,
        watches: bool,
        parts: Parts,
        body: B,
    ) -> Answer
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if let Some(flaw) = remote.backend.flaw() {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, flaw);
        }
        if !remote.available {
            return unavailable();
        }
        let Ok(addresses) = remote.spec.service.addresses(self) else {
            return unavailable();
        };
        let Some(address) = fastrand::choice(&addresses) else {
            return unavailable();
        };
        let Some(head) = outgoing(&parts, address, user) else {
            return page_not_found();
        };
        let body = body.map_err(Into::into).boxed_unsync();
        let sent = remote.backend.send(Request::from_parts(head, body));
        let shutdown = watches.then(|| self.shutdown());
        match tokio::time::timeout(ANSWER_WITHIN, sent).await {
            Ok(Ok(response)) => incoming(response, shutdown),
            Ok(Err(error)) => unreachable_service(&error),
            Err(_) => plain(
                StatusCode::GATEWAY_TIMEOUT,
                "request did not complete within the allotted timeout",
            ),
        }
    }
}

fn plain(code: StatusCode, text: &str) -> Answer {
    answer::text(code, format!("{text}\n"))
}

fn unavailable() -> Answer {
    plain(StatusCode::SERVICE_UNAVAILABLE, "service unavailable")
}

fn unreachable_service(error: &ReachError) -> Answer {
    tracing::debug!(%error, "cannot hand a request on");
    let text = format!("error trying to reach service: {error}");
    plain(StatusCode::SERVICE_UNAVAILABLE, &text)
}

/// `None`: the path cannot be handed on.
fn outgoing(parts: &Parts, address: &Address, user: &User) -> Option<Parts> {
    let path = parts.uri.path();
    // What an escaped slash separates would be another resource there than it was here, where permission was asked.
    if path.to_ascii_lowercase().contains("%2f") {
        return None;
    }
    let target = parts.uri.path_and_query().map_or(path, |p| p.as_str());
    let uri: Uri = format!("https://{address}{target}").parse().ok()?;
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = parts.method.clone();
    head.uri = uri;
    head.version = Version::HTTP_11;
    head.headers = parts.headers.clone();
    let headers = &mut head.headers;
    strip_hop_by_hop(headers);
    headers.remove(header::HOST);
    headers.remove(header::AUTHORIZATION);
    Impersonation::strip(headers);
    front_proxy::identify(headers, user);
    let peer = parts.extensions.get::<Peer>().map(|peer| peer.address);
    forwarded(headers, peer, address, path);
    Some(head)
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    let trailers = headers
        .get(header::TE)
        .is_some_and(|value| value.as_bytes() == b"trailers");
    if !trailers {
        headers.remove(header::TE);
    }
}

/// Where the request came from.
fn forwarded(headers: &mut HeaderMap, peer: Option<SocketAddr>, address: &Address, path: &str) {
    let mut set = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    set("x-forwarded-host", address.to_string());
    set("x-forwarded-proto", "https".to_owned());
    set("x-forwarded-uri", path.to_owned());
    let Some(peer) = peer else {
        return;
    };
    const FOR: &str = "x-forwarded-for";
    let before: Vec<&str> = headers
        .get_all(FOR)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let mut all = before.join(", ");
    if !all.is_empty() {
        all += ", ";
    }
    all += &peer.ip().to_string();
    if let Ok(value) = HeaderValue::try_from(all) {
        headers.insert(FOR, value);
    }
}

/// The answer as our client gets it. With `shutdown` it ends when that begins.
fn incoming(response: Response<Incoming>, shutdown: Option<Shutdown>) -> Answer {
    let (mut head, body) = response.into_parts();
    if head.status.is_redirection() && head.headers.contains_key(header::LOCATION) {
        // Clients would follow with the credentials that they have for us.
        let mut answer = Response::new(full(
            "the backend attempted to redirect this request, which is not permitted",
        ));
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        return answer;
    }
    strip_hop_by_hop(&mut head.headers);
    not_to_be_kept(&mut head.headers);
    head.version = Version::default();
    let body = match shutdown {
        None => body.map_err(Into::into).boxed_unsync(),
        Some(shutdown) => {
            let frames = BodyStream::new(body).map(|frame| frame.map_err(Into::into));
            let end = Box::pin(async move { shutdown.begins().await });
            StreamBody::new(frames.take_until(end)).boxed_unsync()
        }
    };
    Response::from_parts(head, body)
}
