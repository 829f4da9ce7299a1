//! The ssh-agent: lists its keys and signs with them. An agent that hangs or answers garbage is reported and skipped by all hosts for a
//! while.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use russh::keys::agent::client::AgentClient;
use russh::keys::agent::{AgentIdentity, AgentSessionBinding};
use russh::keys::key::parse_public_key;
use russh::keys::ssh_encoding::Decode as _;
use russh::keys::{Algorithm, Certificate, HashAlg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::text::error_chain::plain_io_error;

/// Timeout for listing keys.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for signing: the user may have to touch a token.
const SIGN_TIMEOUT: Duration = Duration::from_secs(60);
/// After this time the user is asked to look at the agent.
const SLOW_NOTICE_DELAY: Duration = Duration::from_secs(3);
/// How long a failed agent is skipped.
const FAILURE_COOLDOWN: Duration = Duration::from_secs(60);
/// Concurrent requests; OpenSSH's agent handles them one by one anyway.
const MAX_REQUESTS: usize = 8;
/// Maximum size of an answer (OpenSSH's own limit).
const MAX_REPLY_BYTES: usize = 256 * 1024;
/// Maximum nesting of certificates; deeper nesting would only exhaust the stack.
const MAX_NESTED_CERTIFICATES: usize = 8;

/// State of the agents of a fleet.
pub(super) struct AgentPool {
    failed_agents: Mutex<HashMap<PathBuf, (Instant, String)>>,
    request_slots: Semaphore,
    /// Tokens are touched for one host at a time.
    touch_slot: Semaphore,
    /// Timeout for signing.
    sign_timeout: Duration,
}

/// A signing request and its key.
pub(super) struct SignRequest<'a> {
    pub(super) identity: &'a AgentIdentity,
    pub(super) hash: Option<HashAlg>,
    pub(super) data: Vec<u8>,
}

impl Default for AgentPool {
    fn default() -> Self {
        AgentPool {
            failed_agents: Mutex::default(),
            request_slots: Semaphore::new(MAX_REQUESTS),
            touch_slot: Semaphore::new(1),
            sign_timeout: SIGN_TIMEOUT,
        }
    }
}

impl AgentPool {
    /// Connects to an agent and lists its keys; the error is a fragment.
    pub(super) async fn connect(
        &self,
        path: &Path,
        binding: Option<&AgentSessionBinding>,
    ) -> Result<(AgentConnection, Vec<AgentIdentity>), String> {
        let _turn = self.request_slots.acquire().await;
        let down = self.failed_agents.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some((_, why)) = down.filter(|(since, _)| since.elapsed() < FAILURE_COOLDOWN) {
            return Err(why);
        }
        let opened = tokio::time::timeout(LIST_TIMEOUT, connect_agent(path, binding)).await;
        opened.unwrap_or_else(|_| Err(format!("did not answer within {LIST_TIMEOUT:?}"))).inspect_err(|why| self.mark_failed(path, why))
    }

    fn mark_failed(&self, path: &Path, reason: &str) {
        self.failed_agents.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), (Instant::now(), reason.to_owned()));
    }

    /// Waits for its turn to sign.
    async fn acquire_slot(&self, identity: &AgentIdentity) -> Option<SemaphorePermit<'_>> {
        let token = matches!(identity.public_key().algorithm(), Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256);
        if token { self.touch_slot.acquire().await.ok() } else { self.request_slots.acquire().await.ok() }
    }

    /// Signs with the agent; `slow` is called once if the user seems to be needed. The error is a fragment. After a timeout the agent's
    /// answers are out of order: the connection must not be used again.
    pub(super) async fn sign(&self, agent: &mut AgentConnection, request: SignRequest<'_>, slow: impl FnOnce()) -> Result<Vec<u8>, String> {
        if agent.out_of_sync {
            return Err("answered out of order".to_owned());
        }
        let _turn = self.acquire_slot(request.identity).await;
        let signing = agent.client.sign_request(request.identity, request.hash, request.data);
        tokio::pin!(signing);
        let signed = match tokio::time::timeout(SLOW_NOTICE_DELAY.min(self.sign_timeout), &mut signing).await {
            Ok(signed) => Ok(signed),
            Err(_) => {
                slow();
                tokio::time::timeout(self.sign_timeout, signing).await
            }
        };
        match signed {
            Ok(Ok(signed)) => Ok(signed),
            Ok(Err(russh::keys::Error::AgentFailure)) => Err("declined to sign".to_owned()),
            Ok(Err(error)) => {
                agent.out_of_sync = true;
                Err(format!("did not sign: {error}"))
            }
            Err(_) => {
                agent.out_of_sync = true;
                let why = format!("did not sign within {:?}", self.sign_timeout);
                self.mark_failed(&agent.path, &why);
                Err(why)
            }
        }
    }
}

/// A connection to an agent.
pub(super) struct AgentConnection {
    client: AgentClient<UnixStream>,
    path: PathBuf,
    out_of_sync: bool,
}

async fn connect_agent(path: &Path, binding: Option<&AgentSessionBinding>) -> Result<(AgentConnection, Vec<AgentIdentity>), String> {
    let mut stream = UnixStream::connect(path).await.map_err(|e| plain_io_error(&e))?;
    if let Some(binding) = binding
        && let Err(error) = AgentClient::connect(&mut stream).bind_session(binding, false).await
    {
        tracing::debug!(%error, "the agent does not bind sessions");
    }
    let identities = list_identities(&mut stream).await?;
    Ok((AgentConnection { client: AgentClient::connect(stream), path: path.to_owned(), out_of_sync: false }, identities))
}

/// Lists the keys (draft-miller-ssh-agent, 3.5). russh's own call treats garbage as an empty list and fails completely for one key that
/// it does not support; here such a key is skipped.
async fn list_identities(stream: &mut UnixStream) -> Result<Vec<AgentIdentity>, String> {
    const REQUEST: [u8; 5] = [0, 0, 0, 1, 11];
    const FAILURE: u8 = 5;
    const ANSWER: u8 = 12;
    let broken = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => "closed the connection without answering".to_owned(),
        _ => plain_io_error(&e),
    };
    let invalid_list = || "returned an invalid list of keys".to_owned();
    stream.write_all(&REQUEST).await.map_err(broken)?;
    let length = usize::try_from(stream.read_u32().await.map_err(broken)?).unwrap_or(usize::MAX);
    if !(1..=MAX_REPLY_BYTES).contains(&length) {
        return Err(invalid_list());
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.map_err(broken)?;
    match answer.split_first() {
        Some((&ANSWER, rest)) => parse_identities(rest).ok_or_else(invalid_list),
        Some((&FAILURE, _)) => Err("refuses to list its keys".to_owned()),
        _ => Err(invalid_list()),
    }
}

/// Parses the list; `None` if it is truncated.
fn parse_identities(mut rest: &[u8]) -> Option<Vec<AgentIdentity>> {
    let count = u32::decode(&mut rest).ok()?;
    let mut found = Vec::new();
    for _ in 0..count {
        let blob = Vec::decode(&mut rest).ok()?;
        let comment = Vec::decode(&mut rest).ok()?;
        found.extend(parse_identity(&blob, String::from_utf8_lossy(&comment).into_owned()));
    }
    Some(found)
}

fn parse_identity(blob: &[u8], comment: String) -> Option<AgentIdentity> {
    const CERTIFICATE_MARKER: &[u8] = b"-cert-v01@";
    match blob.windows(CERTIFICATE_MARKER.len()).filter(|w| *w == CERTIFICATE_MARKER).count() {
        0 => Some(AgentIdentity::PublicKey { key: parse_public_key(blob).ok()?, comment }),
        1..=MAX_NESTED_CERTIFICATES => Some(AgentIdentity::Certificate { certificate: Certificate::from_bytes(blob).ok()?, comment }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
        out.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        out.extend(bytes);
    }

    #[tokio::test]
    async fn unresponsive_agent_times_out_and_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let agents = AgentPool { sign_timeout: Duration::from_millis(50), ..AgentPool::default() };
        let mut agent = AgentConnection { client: AgentClient::connect_uds(&path).await.unwrap(), path: path.clone(), out_of_sync: false };
        let key = russh::keys::PublicKey::from_openssh("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH")
            .unwrap();
        let identity = AgentIdentity::from(key);
        let request = || SignRequest { identity: &identity, hash: None, data: b"data".to_vec() };
        let mut notified = false;
        let signed = agents.sign(&mut agent, request(), || notified = true).await;
        assert_eq!((signed, notified), (Err("did not sign within 50ms".to_owned()), true));
        let again = agents.sign(&mut agent, request(), || {}).await;
        assert_eq!(again, Err("answered out of order".to_owned()));
        assert_eq!(agents.connect(&path, None).await.err().as_deref(), Some("did not sign within 50ms"));
        drop(listener);
    }

    #[test]
    fn unknown_key_types_do_not_hide_others() {
        let mut ed25519 = Vec::new();
        push_string(&mut ed25519, b"ssh-ed25519");
        push_string(&mut ed25519, &[7; 32]);
        let mut list = 3_u32.to_be_bytes().to_vec();
        for (blob, comment) in [(&b"\0\0\0\x09ssh-xmss?"[..], "odd"), (&ed25519, "mine"), (&[][..], "empty")] {
            push_string(&mut list, blob);
            push_string(&mut list, comment.as_bytes());
        }
        let found = parse_identities(&list).expect("a list");
        assert!(found.iter().any(|i| i.comment() == "mine"), "{found:?}");
        assert!(!found.iter().any(|i| i.comment() == "empty"), "{found:?}");
        for cut in 0..list.len() {
            assert!(parse_identities(&list[..cut]).is_none(), "{cut}");
        }
    }
}
