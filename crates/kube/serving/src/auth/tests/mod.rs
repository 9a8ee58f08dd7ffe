//! Whom to let in, with real certificates and an API server that says what the test wants.

mod chain;
mod delegated;
mod reviews;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, request};

use super::*;
use crate::Peer;
use crate::pki::Authority;

const TEN: Duration = Duration::from_secs(10);
/// Much longer than anything takes that does not wait for a clock of its own.
const SOON: Duration = Duration::from_secs(60);

fn nobody() -> Peer {
    Peer::new("10.0.0.1:1".parse().unwrap(), &[])
}

fn head(peer: &Peer, headers: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::get("/metrics").extension(peer.clone());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

#[derive(Debug)]
struct OneToken;

impl Tokens for OneToken {
    fn user<'a>(
        &'a self,
        token: &'a str,
    ) -> futures::future::BoxFuture<'a, Result<Option<UserInfo>, TokenError>> {
        let user = UserInfo {
            name: "by-token".to_owned(),
            ..UserInfo::default()
        };
        Box::pin(async move {
            match token {
                "good" => Ok(Some(user)),
                "unclear" => Err(TokenError("no answer".to_owned())),
                _ => Ok(None),
            }
        })
    }
}

struct House {
    proxies: Authority,
    clients: Authority,
    authenticator: Authenticator,
}

impl House {
    fn new() -> Self {
        let (proxies, clients) = (Authority::new(), Authority::new());
        let rules = RequestHeaderConfig {
            allowed_names: vec!["front-proxy".to_owned()],
            ..RequestHeaderConfig::default()
        };
        let authenticator = Authenticator {
            front_proxy: FrontProxy::new(proxies.trust(), rules),
            client_ca: clients.trust(),
            tokens: Some(Arc::new(OneToken)),
            anonymous: true,
            expirations: CertificateExpiration::default(),
        };
        Self {
            proxies,
            clients,
            authenticator,
        }
    }

    /// Name and groups, or why not.
    async fn who(&self, peer: &Peer, headers: &[(&str, &str)]) -> Result<String, String> {
        let mut head = head(peer, headers);
        let outcome = self.authenticator.authenticate(&mut head).await;
        for name in head.headers.keys() {
            assert!(!name.as_str().starts_with("x-remote-"), "{name} is left");
        }
        if outcome.is_ok() {
            assert!(!head.headers.contains_key("authorization"));
        }
        let user = outcome.map_err(|error| error.to_string())?;
        Ok(format!("{} {}", user.name, user.groups.join(",")))
    }
}
