//! The ssh-agent: which keys it holds, and signatures by them. One that hangs or talks nonsense is named, and passed over by all hosts for a
//! while.
//!
//! Uses nothing of its neighbours. Owns the agent's socket; knows no SSH connection.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use russh::keys::agent::client::AgentClient;
use russh::keys::agent::{AgentIdentity, AgentSessionBinding};
use russh::keys::key::parse_public_key;
use russh::keys::{Algorithm, Certificate, HashAlg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// How long the agent may take to list its keys.
const LIST: Duration = Duration::from_secs(2);
/// How long it may take to sign: a person may have to touch a token.
const SIGN: Duration = Duration::from_secs(60);
/// After this the person is told that the agent is waited for.
const QUIET: Duration = Duration::from_secs(3);
/// How long an agent that failed is left alone.
const LEFT_ALONE: Duration = Duration::from_secs(60);
/// Requests at once; OpenSSH's agent answers one after another anyway.
const AT_ONCE: usize = 8;
/// No answer is longer (OpenSSH's own limit).
const LARGEST: usize = 256 * 1024;
/// No certificate holds more certificates one inside another; more would only be made to exhaust the stack of who reads them.
const NESTED: usize = 8;

/// What the fleet knows of its agents.
pub(super) struct Agents {
    down: Mutex<HashMap<PathBuf, (Instant, String)>>,
    turns: Semaphore,
    /// A token is touched for one host after another.
    touches: Semaphore,
    /// How long signing may take.
    patience: Duration,
}

impl Default for Agents {
    fn default() -> Self {
        Agents { down: Mutex::default(), turns: Semaphore::new(AT_ONCE), touches: Semaphore::new(1), patience: SIGN }
    }
}

impl Agents {
    /// Connects to an agent and lists its keys; an error is a fragment.
    pub(super) async fn open(&self, path: &Path, binding: Option<&AgentSessionBinding>) -> Result<(Agent, Vec<AgentIdentity>), String> {
        let _turn = self.turns.acquire().await;
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some((_, why)) = down.filter(|(since, _)| since.elapsed() < LEFT_ALONE) {
            return Err(why);
        }
        let opened = tokio::time::timeout(LIST, open(path, binding)).await;
        opened.unwrap_or_else(|_| Err(format!("gave no answer within {LIST:?}"))).inspect_err(|why| self.failed(path, why))
    }

    fn failed(&self, path: &Path, why: &str) {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), (Instant::now(), why.to_owned()));
    }

    /// Waits for a turn to have something signed.
    async fn turn(&self, identity: &AgentIdentity) -> Option<SemaphorePermit<'_>> {
        let token = matches!(identity.public_key().algorithm(), Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256);
        if token { self.touches.acquire().await.ok() } else { self.turns.acquire().await.ok() }
    }

    /// Lets the agent sign; `slow` is called once when a person seems to be waited for. An error is a fragment. After a time-out the agent's
    /// answers are out of step: it must not be asked again.
    pub(super) async fn sign(
        &self,
        agent: &mut Agent,
        identity: &AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
        slow: impl FnOnce(),
    ) -> Result<Vec<u8>, String> {
        if agent.broken {
            return Err("is out of step".to_owned());
        }
        let _turn = self.turn(identity).await;
        let signing = agent.client.sign_request(identity, hash, data);
        tokio::pin!(signing);
        let signed = match tokio::time::timeout(QUIET.min(self.patience), &mut signing).await {
            Ok(signed) => Ok(signed),
            Err(_) => {
                slow();
                tokio::time::timeout(self.patience, signing).await
            }
        };
        match signed {
            Ok(Ok(signed)) => Ok(signed),
            Ok(Err(russh::keys::Error::AgentFailure)) => Err("declined to sign".to_owned()),
            Ok(Err(error)) => {
                agent.broken = true;
                Err(format!("did not sign: {error}"))
            }
            Err(_) => {
                agent.broken = true;
                let why = format!("did not sign within {:?}", self.patience);
                self.failed(&agent.path, &why);
                Err(why)
            }
        }
    }
}

/// A connection to an agent.
pub(super) struct Agent {
    client: AgentClient<UnixStream>,
    path: PathBuf,
    broken: bool,
}

async fn open(path: &Path, binding: Option<&AgentSessionBinding>) -> Result<(Agent, Vec<AgentIdentity>), String> {
    let mut stream = UnixStream::connect(path).await.map_err(|e| super::transport::words(&e))?;
    if let Some(binding) = binding
        && let Err(error) = AgentClient::connect(&mut stream).bind_session(binding, false).await
    {
        tracing::debug!(%error, "the agent does not bind sessions");
    }
    let identities = list(&mut stream).await?;
    Ok((Agent { client: AgentClient::connect(stream), path: path.to_owned(), broken: false }, identities))
}

/// Asks for the keys (draft-miller-ssh-agent, 3.5). russh's own call takes nonsense for an empty list and fails as a whole for one key that
/// it does not know; here such a key is passed over.
async fn list(stream: &mut UnixStream) -> Result<Vec<AgentIdentity>, String> {
    const REQUEST: [u8; 5] = [0, 0, 0, 1, 11];
    const FAILURE: u8 = 5;
    const ANSWER: u8 = 12;
    let broken = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => "closed instead of answering".to_owned(),
        _ => super::transport::words(&e),
    };
    let nonsense = || "answered something that is no list of keys".to_owned();
    stream.write_all(&REQUEST).await.map_err(broken)?;
    let length = usize::try_from(stream.read_u32().await.map_err(broken)?).unwrap_or(usize::MAX);
    if !(1..=LARGEST).contains(&length) {
        return Err(nonsense());
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.map_err(broken)?;
    match answer.split_first() {
        Some((&ANSWER, rest)) => identities(rest).ok_or_else(nonsense),
        Some((&FAILURE, _)) => Err("refuses to list its keys".to_owned()),
        _ => Err(nonsense()),
    }
}

/// Reads the list; `None`: it is cut short.
fn identities(mut rest: &[u8]) -> Option<Vec<AgentIdentity>> {
    let count = number(&mut rest)?;
    let mut found = Vec::new();
    for _ in 0..count {
        let blob = string(&mut rest)?;
        let comment = String::from_utf8_lossy(string(&mut rest)?).into_owned();
        found.extend(identity(blob, comment));
    }
    Some(found)
}

fn identity(blob: &[u8], comment: String) -> Option<AgentIdentity> {
    const MARK: &[u8] = b"-cert-v01@";
    match blob.windows(MARK.len()).filter(|w| *w == MARK).count() {
        0 => Some(AgentIdentity::PublicKey { key: parse_public_key(blob).ok()?, comment }),
        1..=NESTED => Some(AgentIdentity::Certificate { certificate: Certificate::from_bytes(blob).ok()?, comment }),
        _ => None,
    }
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (head, tail) = rest.split_first_chunk::<4>()?;
    *rest = tail;
    Some(u32::from_be_bytes(*head))
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest)?).ok()?;
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(out: &mut Vec<u8>, bytes: &[u8]) {
        out.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        out.extend(bytes);
    }

    #[tokio::test]
    async fn an_agent_that_never_signs_is_given_up_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let agents = Agents { patience: Duration::from_millis(50), ..Agents::default() };
        let mut agent = Agent { client: AgentClient::connect_uds(&path).await.unwrap(), path: path.clone(), broken: false };
        let key = russh::keys::PublicKey::from_openssh("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH")
            .unwrap();
        let mut told = false;
        let signed = agents.sign(&mut agent, &key.clone().into(), None, b"data".to_vec(), || told = true).await;
        assert_eq!((signed, told), (Err("did not sign within 50ms".to_owned()), true));
        let again = agents.sign(&mut agent, &key.into(), None, b"data".to_vec(), || {}).await;
        assert_eq!(again, Err("is out of step".to_owned()));
        assert_eq!(agents.open(&path, None).await.err().as_deref(), Some("did not sign within 50ms"));
        drop(listener);
    }

    #[test]
    fn a_key_that_is_not_known_hides_no_other() {
        let mut ed25519 = Vec::new();
        push(&mut ed25519, b"ssh-ed25519");
        push(&mut ed25519, &[7; 32]);
        let mut list = 3_u32.to_be_bytes().to_vec();
        for (blob, comment) in [(&b"\0\0\0\x09ssh-xmss?"[..], "odd"), (&ed25519, "mine"), (&[][..], "empty")] {
            push(&mut list, blob);
            push(&mut list, comment.as_bytes());
        }
        let found = identities(&list).expect("a list");
        assert!(found.iter().any(|i| i.comment() == "mine"), "{found:?}");
        assert!(!found.iter().any(|i| i.comment() == "empty"), "{found:?}");
        for cut in 0..list.len() {
            assert!(identities(&list[..cut]).is_none(), "{cut}");
        }
    }
}
