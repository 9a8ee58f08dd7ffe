//! What to do about an error of the API server, or on the way to it.

use std::error::Error;
use std::io;

/// The error with all its causes, and advice where there is any.
pub fn explain(error: &kube::Error) -> String {
    let mut text = match error {
        kube::Error::Api(status) => status.message.clone(),
        _ => chain(error),
    };
    if let Some(advice) = advice(error) {
        text.push_str("; ");
        text.push_str(advice);
    }
    text
}

/// An error with its causes, each once: many errors tell their cause's text as well.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

fn advice(error: &kube::Error) -> Option<&'static str> {
    if let kube::Error::Api(status) = error {
        return match status.code {
            401 => Some(
                "the API server does not know these credentials: has the token or certificate expired?",
            ),
            403 => Some("grant it by RBAC to the user named here"),
            404 if status.details.is_none() => Some(
                "the API server does not serve this kind: is its CustomResourceDefinition installed?",
            ),
            429 => Some("the API server is overloaded; it is asked again later"),
            _ => None,
        };
    }
    advice_on_the_way(error)
}

fn advice_on_the_way(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(advice) = error.downcast_ref().and_then(tls_advice) {
        return Some(advice);
    }
    if error.is::<tokio::time::error::Elapsed>() {
        return Some("the API server did not answer in time");
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                return Some("is the API server running, and is its address right?");
            }
            io::ErrorKind::TimedOut => {
                return Some("does a firewall or network policy keep it from us?");
            }
            _ => {}
        }
        // What is inside of these is not their source, but its source is.
        let inside = error
            .get_ref()
            .map(|inside| inside as &(dyn Error + 'static));
        if let Some(advice) = inside.and_then(advice_on_the_way) {
            return Some(advice);
        }
    }
    match error.source() {
        Some(cause) => advice_on_the_way(cause),
        None if error.to_string().contains("failed to lookup address") => {
            Some("the API server's name is unknown here: check the address and the name server")
        }
        None => None,
    }
}

fn tls_advice(error: &rustls::Error) -> Option<&'static str> {
    use rustls::CertificateError as Why;
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            // Authorities of different clusters may well have the same name.
            Why::UnknownIssuer | Why::BadSignature => Some(
                "the API server's certificate is not of the authority in the kubeconfig: is this the right cluster?",
            ),
            Why::NotValidForName | Why::NotValidForNameContext { .. } => Some(
                "the API server's certificate is for another name: use one it is for, or set tls-server-name",
            ),
            Why::Expired | Why::ExpiredContext { .. } => {
                Some("the API server's certificate has expired, or this machine's clock is wrong")
            }
            Why::NotValidYet | Why::NotValidYetContext { .. } => Some(
                "the API server's certificate is not valid yet: is this machine's clock right?",
            ),
            _ => None,
        },
        _ => None,
    }
}
