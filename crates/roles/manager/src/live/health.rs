//! What probes are told.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Response, StatusCode, request};
use http_body_util::Full;
use plimsoll_client::leader_election::Leadership;
use plimsoll_client::reflector::CacheSync;
use plimsoll_metrics::Exposition;
use plimsoll_serving::health::{Endpoint, Health};
use plimsoll_serving::{BindError, Handler, HandlerService, RequestBody};

pub use plimsoll_serving::Serving;

/// Ready is who is at work with everything known, or stands by for one that is.
pub(super) fn checks(leadership: Option<Leadership>, gate: CacheSync) -> Health {
    let stands = leadership.clone();
    Health::default()
        .with(&[Endpoint::Readyz], "leaderElection", move || {
            stands.as_ref().map_or(Ok(()), Leadership::stands)
        })
        .with(&[Endpoint::Readyz], "informer-sync", move || {
            let works = leadership.as_ref().is_none_or(Leadership::is_leader);
            match works && !gate.is_open() {
                true => Err(format!("waiting for {}", gate.missing().join(", "))),
                false => Ok(()),
            }
        })
}

/// Plain HTTP, for the kubelet: nothing is told but how it is.
pub async fn serve(health: Health, listen: SocketAddr) -> Result<Serving, BindError> {
    let bound = plimsoll_serving::Config::new(listen).bind().await?;
    let address = bound.local_addr();
    tracing::info!(%address, "serving health checks");
    Ok(bound.spawn(HandlerService(Probed(health))))
}

#[derive(Debug, Clone)]
struct Probed(Health);

impl Handler for Probed {
    type Body = Full<Bytes>;

    async fn respond(self, head: request::Parts, _: RequestBody) -> Response<Self::Body> {
        let path = head.uri.path();
        if let Some(answer) = self.0.answer(path, head.uri.query()) {
            return answer;
        }
        let (status, text) = match path {
            "/metrics" => {
                let mut page = Exposition::default();
                self.0.write(&mut page);
                (StatusCode::OK, page.finish())
            }
            _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        };
        let mut answer = Response::new(Full::new(Bytes::from(text)));
        *answer.status_mut() = status;
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_know_the_cluster_is_not_ready() {
        let gate = CacheSync::default();
        let ticket = gate.register("nodes");
        let health = checks(None, gate);
        let status = |path| health.answer(path, None).unwrap().status().as_u16();
        assert_eq!((status("/livez"), status("/readyz")), (200, 500));
        ticket.trouble("nodes is forbidden".to_owned());
        assert_eq!(status("/readyz/informer-sync"), 500);
        ticket.ready();
        assert_eq!(status("/readyz"), 200);
    }
}
