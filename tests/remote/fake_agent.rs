//! ssh-agents for tests; one holds a key on a FIDO token simulated in software.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{PrivateKey, signature::Signer as _};
use sha2::{Digest as _, Sha256};

const KEY_TYPE: &[u8] = b"sk-ssh-ed25519@openssh.com";
const APPLICATION: &[u8] = b"ssh:";
/// The user has touched the token (CTAP2, user present).
const USER_PRESENT: u8 = 1;
const REQUEST_IDENTITIES: u8 = 11;
const SIGN_REQUEST: u8 = 13;
/// An agent's failure reply.
const FAILURE_REPLY: [u8; 5] = [0, 0, 0, 1, 5];

/// Serves a socket until the test process ends; `answer` returns the reply to a request, or `None` for no reply.
pub(crate) fn serve_agent(socket: &Path, answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) {
    let listener = UnixListener::bind(socket).expect("a socket");
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || answer_requests(stream, answer.as_ref()));
        }
    });
}

fn answer_requests(mut stream: UnixStream, answer: &dyn Fn(&[u8]) -> Option<Vec<u8>>) {
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

/// An agent with a key on a security token.
pub(crate) struct SecurityKeyAgent {
    pub(crate) socket: PathBuf,
    /// The key's line for authorized_keys.
    pub(crate) public_key_line: String,
    /// The number of signature requests.
    pub(crate) sign_requests: Arc<AtomicU32>,
}

impl SecurityKeyAgent {
    /// Starts the agent; the token is `touched` at once, or never.
    pub(crate) fn start(folder: &Path, touched: bool) -> Self {
        let socket = folder.join("token");
        let pair = Ed25519Keypair::from_seed(&Sha256::digest(socket.as_os_str().as_encoded_bytes()).into());
        let blob = [encode_string(KEY_TYPE), encode_string(pair.public.as_ref()), encode_string(APPLICATION)].concat();
        let public = format!("sk-ssh-ed25519@openssh.com {} token\n", base64::engine::general_purpose::STANDARD.encode(&blob));
        let key = PrivateKey::new(KeypairData::Ed25519(pair), "token").expect("a key");
        let query = Arc::new(AtomicU32::new(0));
        let count = query.clone();
        serve_agent(&socket, move |request| match request.split_first() {
            Some((&REQUEST_IDENTITIES, _)) => {
                Some(encode_string(&[&[12, 0, 0, 0, 1][..], &encode_string(&blob), &encode_string(b"a token")].concat()))
            }
            Some((&SIGN_REQUEST, mut rest)) => {
                assert_eq!(take_string(&mut rest), blob, "the request names the agent's key");
                let counter = count.fetch_add(1, Ordering::SeqCst) + 1;
                touched.then(|| {
                    encode_string(&[&[14][..], &encode_string(&sign_as_security_key(&key, take_string(&mut rest), counter))].concat())
                })
            }
            _ => Some(FAILURE_REPLY.to_vec()),
        });
        SecurityKeyAgent { socket, public_key_line: public, sign_requests: query }
    }
}

/// Signs like a token: the application's hash, the user-present flag, the counter, and the hash of the data (OpenSSH's PROTOCOL.u2f).
fn sign_as_security_key(key: &PrivateKey, data: &[u8], counter: u32) -> Vec<u8> {
    let tail = [&[USER_PRESENT][..], &counter.to_be_bytes()].concat();
    let signed = [&Sha256::digest(APPLICATION)[..], &tail, &Sha256::digest(data)].concat();
    let signature = key.try_sign(&signed).expect("signed");
    [encode_string(KEY_TYPE), encode_string(signature.as_bytes()), tail].concat()
}

fn encode_string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short");
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Removes and returns the first string.
fn take_string<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let (length, tail) = rest.split_first_chunk::<4>().expect("a length");
    let (head, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
    *rest = tail;
    head
}
