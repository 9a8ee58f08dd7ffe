use std::fs;

use super::*;

fn source(config: kube::Config) -> Source {
    let config = Arc::new(config);
    Arc::new(move || Arc::clone(&config))
}

fn config() -> kube::Config {
    kube::Config::new("https://localhost:1".parse().unwrap())
}

async fn token(identity: &Identity) -> String {
    let token = identity.token().await.unwrap();
    token.map_or_else(String::new, |token| token.to_str().unwrap().to_owned())
}

#[tokio::test(start_paused = true)]
async fn tokens_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, "one").unwrap();
    let mut config = config();
    config.auth_info.token_file = Some(path.to_string_lossy().into_owned());
    let identity = Identity::new(Trust::default(), source(config)).unwrap();
    assert_eq!(token(&identity).await, "Bearer one");
    fs::write(&path, "two").unwrap();
    assert_eq!(token(&identity).await, "Bearer one");
    tokio::time::advance(TOKEN_FOR).await;
    assert_eq!(token(&identity).await, "Bearer two");
    // A file that is away for a moment is an error, not a request without a name.
    fs::remove_file(&path).unwrap();
    tokio::time::advance(TOKEN_FOR).await;
    identity.token().await.unwrap_err();
}

#[tokio::test]
async fn completely_insecure_sends_nothing() {
    let mut config = config();
    config.auth_info.token = Some("secret".to_owned().into());
    let trust = Trust {
        nothing: true,
        ..Trust::default()
    };
    let identity = Identity::new(trust, source(config)).unwrap();
    assert_eq!(token(&identity).await, "");
}

#[tokio::test]
async fn files_that_are_of_no_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.crt");
    let trust = Trust {
        authority: Some(path.clone()),
        ..Trust::default()
    };
    let new = || Identity::new(trust.clone(), source(config())).map(drop);
    assert!(matches!(new(), Err(IdentityError::Read { .. })));
    fs::write(&path, "no certificate").unwrap();
    assert!(matches!(new(), Err(IdentityError::NoCertificate { .. })));
}
