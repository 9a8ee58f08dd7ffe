//! Records when a watch is answered. A watch may be silent for a long time and is current all the same.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tower::{BoxError, Service};

/// Counts answered watches.
pub(super) type Answered = watch::Receiver<u64>;

pub(super) fn noted(client: Client) -> (Client, Answered) {
    let (count, answered) = watch::channel(0);
    let namespace = client.default_namespace().to_owned();
    (Client::new(Noted { client, count }, namespace), answered)
}

#[derive(Clone)]
struct Noted {
    client: Client,
    count: watch::Sender<u64>,
}

impl Service<Request<Body>> for Noted {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        async move {
            let query = request.uri().query().unwrap_or_default();
            let watches = query.split('&').any(|part| part == "watch=true");
            let answer = this.client.send(request).await?;
            if watches && answer.status().is_success() {
                this.count
                    .send_modify(|count| *count = count.wrapping_add(1));
            }
            Ok(answer)
        }
        .boxed()
    }
}
