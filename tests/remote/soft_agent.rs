//! ssh-agents made for a test; one has its key on a FIDO token that is made of software.
#![expect(clippy::expect_used, reason = "a fixture fails loudly")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{PrivateKey, signature::Signer as _};
use sha2::{Digest as _, Sha256};

const KIND: &[u8] = b"sk-ssh-ed25519@openssh.com";
const APPLICATION: &[u8] = b"ssh:";
/// The person has touched the token (CTAP2, user present).
const TOUCHED: u8 = 1;
const LIST: u8 = 11;
const SIGN: u8 = 13;
/// What an agent says that does not do what it was asked.
const FAILURE: [u8; 5] = [0, 0, 0, 1, 5];

/// Serves at a socket until the test's process ends; `answer` makes bytes of a request, or nothing.
pub(crate) fn listen(socket: &Path, answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) {
    let listener = UnixListener::bind(socket).expect("a socket");
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || serve(stream, answer.as_ref()));
        }
    });
}

fn serve(mut stream: UnixStream, answer: &dyn Fn(&[u8]) -> Option<Vec<u8>>) {
    let mut length = [0; 4];
    while stream.read_exact(&mut length).is_ok() {
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        if stream.read_exact(&mut request).is_err() {
            return;
        }
        if let Some(bytes) = answer(&request)
            && stream.write_all(&bytes).is_err()
        {
            return;
        }
    }
}

/// An agent with a key on a token.
pub(crate) struct Token {
    pub(crate) socket: PathBuf,
    /// The line for authorized_keys.
    pub(crate) public: String,
    /// How often it was asked to sign.
    pub(crate) asked: Arc<AtomicU32>,
}

impl Token {
    /// Starts it; it is `touched` at once, or never.
    pub(crate) fn start(folder: &Path, touched: bool) -> Self {
        let socket = folder.join("token");
        let pair = Ed25519Keypair::from_seed(&Sha256::digest(socket.as_os_str().as_encoded_bytes()).into());
        let blob = [text(KIND), text(pair.public.as_ref()), text(APPLICATION)].concat();
        let public = format!("sk-ssh-ed25519@openssh.com {} token\n", base64::engine::general_purpose::STANDARD.encode(&blob));
        let key = PrivateKey::new(KeypairData::Ed25519(pair), "token").expect("a key");
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        listen(&socket, move |request| match request.split_first() {
            Some((&LIST, _)) => Some(text(&[&[12, 0, 0, 0, 1][..], &text(&blob), &text(b"a token")].concat())),
            Some((&SIGN, mut rest)) => {
                assert_eq!(cut(&mut rest), blob, "it is asked for its own key");
                let counter = count.fetch_add(1, Ordering::SeqCst) + 1;
                touched.then(|| text(&[&[14][..], &text(&sign(&key, cut(&mut rest), counter))].concat()))
            }
            _ => Some(FAILURE.to_vec()),
        });
        Token { socket, public, asked }
    }
}

/// As a token signs: the application's hash, that it was touched, its counter, and the hash of the data (PROTOCOL.u2f of OpenSSH).
fn sign(key: &PrivateKey, data: &[u8], counter: u32) -> Vec<u8> {
    let tail = [&[TOUCHED][..], &counter.to_be_bytes()].concat();
    let signed = [&Sha256::digest(APPLICATION)[..], &tail, &Sha256::digest(data)].concat();
    let signature = key.try_sign(&signed).expect("signed");
    [text(KIND), text(signature.as_bytes()), tail].concat()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short");
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Cuts a string off the front.
fn cut<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let (length, tail) = rest.split_first_chunk::<4>().expect("a length");
    let (head, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
    *rest = tail;
    head
}
