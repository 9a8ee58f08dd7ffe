//! The stream alone, with another side that sends as it likes.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::tls::TlsStream;
use super::*;

/// A page, longer than any room that is lent for it.
fn page() -> Vec<u8> {
    (0..100_000_u32).map(|number| number as u8).collect()
}

struct Pair {
    authority: Authority,
    versions: Vec<&'static rustls::SupportedProtocolVersion>,
}

impl Pair {
    fn config(&self, authority: &Authority) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let pem = authority.pem();
        roots
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }

    /// The other side answers a request with the page, in pieces of this size, and ends as it is told to.
    async fn answered(&self, piece: usize, orderly: bool) -> std::io::Result<Vec<u8>> {
        let tls = self.authority.acceptor(&["127.0.0.1"]);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let tcp = TcpStream::connect(listener.local_addr()?).await?;
        let (peer, _) = listener.accept().await?;
        let answering = async move {
            let mut peer = tls.accept(peer).await.unwrap();
            let mut request = [0; 7];
            peer.read_exact(&mut request).await.unwrap();
            assert_eq!(&request, b"request");
            for piece in page().chunks(piece) {
                peer.write_all(piece).await.unwrap();
            }
            peer.flush().await.unwrap();
            match orderly {
                true => peer.shutdown().await.unwrap(),
                false => peer.into_inner().0.shutdown().await.unwrap(),
            }
        };
        let asking = async {
            let config = self.config(&self.authority);
            let name = "127.0.0.1".try_into().unwrap();
            let mut stream = TlsStream::connect(config, name, tcp, Vec::new()).await?;
            stream.write_all(b"request").await?;
            stream.flush().await?;
            let mut read = Vec::new();
            // Less than a record at a time, and more.
            while read.len() < 20_000 {
                read.push(stream.read_u8().await?);
            }
            stream.read_to_end(&mut read).await?;
            let (_, empty) = stream.reclaim();
            assert!(empty);
            Ok(read)
        };
        tokio::join!(answering, asking).1
    }
}

#[tokio::test]
async fn everything_comes_through_in_pieces_of_any_size() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let pair = Pair {
            authority: Authority::new(),
            versions: vec![version],
        };
        for piece in [97, 1_400, 16_384, 100_000] {
            let read = pair.answered(piece, true).await.unwrap();
            assert!(read == page(), "{version:?} {piece}");
        }
        // Whoever hangs up without a word may have had more to say.
        let error = pair.answered(16_384, false).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}

#[tokio::test]
async fn the_other_side_hears_why_it_is_not_believed() {
    let pair = Pair {
        authority: Authority::new(),
        versions: rustls::ALL_VERSIONS.to_vec(),
    };
    let tls = pair.authority.acceptor(&["127.0.0.1"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (peer, _) = listener.accept().await.unwrap();
    let config = pair.config(&Authority::new());
    let name = "127.0.0.1".try_into().unwrap();
    let asking = TlsStream::connect(config, name, tcp, Vec::new());
    let (heard, error) = tokio::join!(tls.accept(peer), asking);
    let said = |error: std::io::Error| error.into_inner().unwrap().to_string();
    let error = said(error.unwrap_err());
    assert!(error.contains("certificate"), "{error}");
    let heard = said(heard.err().unwrap());
    assert!(heard.contains("alert"), "{heard}");
}
