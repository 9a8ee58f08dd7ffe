//! The chain of authenticators.

use super::*;

const FORGED: [(&str, &str); 3] = [
    ("X-Remote-User", "admin"),
    ("X-Remote-Group", "system:masters"),
    ("X-Remote-Extra-Scopes", "all"),
];

#[tokio::test]
async fn only_the_front_proxy_is_believed_about_others() {
    let house = House::new();
    let proxy = house.proxies.peer("front-proxy", "o");
    assert_eq!(
        house.who(&proxy, &FORGED).await.unwrap(),
        "admin system:masters,system:authenticated"
    );
    // The same words from anybody else mean nothing.
    let client = house.clients.peer("jane", "devs");
    assert_eq!(
        house.who(&client, &FORGED).await.unwrap(),
        "jane devs,system:authenticated"
    );
    assert_eq!(
        house.who(&nobody(), &FORGED).await.unwrap(),
        "system:anonymous system:unauthenticated"
    );
    let other = house.proxies.peer("not-the-proxy", "o");
    let refused = house.who(&other, &FORGED).await.unwrap_err();
    assert!(
        refused.contains("subject with cn=not-the-proxy is not in the allowed list"),
        "{refused}"
    );
    let stranger = Authority::new().peer("front-proxy", "system:masters");
    house.who(&stranger, &FORGED).await.unwrap_err();
}

#[tokio::test]
async fn a_front_proxy_that_names_nobody_is_nobody() {
    let house = House::new();
    let proxy = house.proxies.peer("front-proxy", "o");
    // Its certificate is no client's: the client authority objects.
    house.who(&proxy, &[]).await.unwrap_err();
    let anonymous = [
        ("X-Remote-User", "system:anonymous"),
        ("X-Remote-Group", "system:unauthenticated"),
    ];
    assert_eq!(
        house.who(&proxy, &anonymous).await.unwrap(),
        "system:anonymous system:unauthenticated"
    );
}

#[tokio::test]
async fn credentials_that_fail_do_not_make_an_anonymous_user() {
    let house = House::new();
    let stranger = Authority::new().peer("jane", "devs");
    house.who(&stranger, &[]).await.unwrap_err();
    // The next credential still counts.
    let good = [("Authorization", "Bearer good")];
    let by_token = "by-token system:authenticated";
    assert_eq!(house.who(&stranger, &good).await.unwrap(), by_token);
    assert_eq!(house.who(&nobody(), &good).await.unwrap(), by_token);
    for (wrong, why) in [
        ("Bearer bad", "invalid bearer token"),
        // No text, but a token all the same.
        ("Bearer \u{e9}", "invalid bearer token"),
        ("Bearer unclear", "no answer"),
    ] {
        let refused = house.who(&nobody(), &[("Authorization", wrong)]).await;
        assert_eq!(refused.unwrap_err(), why);
    }
    for none in ["Basic Z29vZDo=", "Bearer", "Bearer  good"] {
        let user = house.who(&nobody(), &[("Authorization", none)]).await;
        assert_eq!(user.unwrap(), "system:anonymous system:unauthenticated");
    }
    let strict = Authenticator {
        anonymous: false,
        ..house.authenticator.clone()
    };
    let mut head = head(&nobody(), &[]);
    strict.authenticate(&mut head).await.unwrap_err();
}

#[tokio::test]
async fn authorities_may_change_under_an_open_connection() {
    let house = House::new();
    let jane = house.clients.peer("jane", "devs");
    house.who(&jane, &[]).await.unwrap();
    let next = Authority::new();
    let replaced = house.authenticator.client_ca.replace(next.pem().as_bytes());
    assert!(replaced.unwrap());
    house.who(&jane, &[]).await.unwrap_err();
    house.who(&next.peer("joe", "ops"), &[]).await.unwrap();
}
