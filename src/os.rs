//! What the operating system offers and no safe crate does: datagrams in
//! batches, with the address each was sent to, four socket options, random
//! octets, network namespaces, waiting for any file descriptor, becoming another
//! user, taking sockets over, and giving memory back; and reading files that may
//! turn out to be none.
//!
//! All the `unsafe` of this crate is here. A [`Batch`] owns every octet and
//! every header the kernel reads or writes, in one allocation that never
//! moves, so that the pointers among them are set once.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::mem::{MaybeUninit, offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use libc::{cmsghdr, in_pktinfo, in6_pktinfo, iovec, mmsghdr, sockaddr_in6, socklen_t};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::wire::MAX_UDP;

/// The octets of a regular file of at most `limit`. A pipe or a device, which
/// may let its reader wait for ever, is an error.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // without waiting: it may have become a pipe's name since somebody looked
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let data = file.metadata()?;
    if data.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !data.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let too_large = || Err(io::Error::other(format!("it has more than {limit} octets")));
    if data.len() > limit {
        return too_large(); // before it takes any memory
    }
    let mut octets = Vec::with_capacity(data.len() as usize + 1);
    file.take(limit + 1).read_to_end(&mut octets)?;
    match octets.len() as u64 > limit {
        true => too_large(), // it grew
        false => Ok(octets),
    }
}

/// Octets that nobody can guess.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut octets = [0; N];
    // up to 256 octets come whole once the kernel has gathered enough at all
    match getrandom(&mut octets, GetRandomFlags::empty())? {
        length if length == N => Ok(octets),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Datagrams received or sent by one system call.
pub const DEPTH: usize = 64;
/// The longest query taken. Not a power of two, so that the beginnings of the
/// buffers do not all fall into the same set of the processor's cache.
const QUERY: usize = 4096 + 64;
/// The longest reply.
pub const REPLY: usize = MAX_UDP;

/// Datagrams received together, and the replies to them.
#[derive(Debug)]
pub struct Batch {
    storage: NonNull<Storage>,
    /// How many of the receiving headers the last call has filled in.
    received: usize,
    /// Replies waiting to be sent, and the octets they take.
    queued: usize,
    filled: usize,
}

/// Everything the kernel sees. All zeros is a valid value of each field.
#[repr(C)]
struct Storage {
    incoming: [mmsghdr; DEPTH],
    outgoing: [mmsghdr; DEPTH],
    query_slices: [iovec; DEPTH],
    reply_slices: [iovec; DEPTH],
    /// Room for either family: the IPv4 form is shorter, with its port at the same place.
    clients: [sockaddr_in6; DEPTH],
    controls: [Control; DEPTH],
    queries: [[u8; QUERY]; DEPTH],
    /// One behind the other, not each in a place of its own.
    replies: [u8; DEPTH * REPLY],
}

/// One control message with its header, either family.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control {
    header: cmsghdr,
    info: Info,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Info {
    v4: in_pktinfo,
    v6: in6_pktinfo,
    /// Rounds up to what CMSG_SPACE asks for.
    whole: [u64; 3],
}

// CMSG_DATA follows the header directly on every Linux.
const _: () = assert!(offset_of!(Control, info) == size_of::<cmsghdr>());
const _: () = assert!(size_of::<libc::sockaddr_in>() <= size_of::<sockaddr_in6>());
const _: () = assert!(offset_of!(libc::sockaddr_in, sin_port) == offset_of!(sockaddr_in6, sin6_port));
const _: () = assert!(offset_of!(libc::sockaddr_in, sin_addr) == offset_of!(sockaddr_in6, sin6_flowinfo));

// SAFETY: the storage belongs to this value alone, and only `&mut self` methods touch it.
unsafe impl Send for Batch {}

impl Batch {
    /// An empty batch; `addressed` when the sockets report local addresses.
    pub fn new(addressed: bool) -> Batch {
        // SAFETY: integers, unions of integers and raw pointers may all be zero.
        let mut storage = unsafe { Box::<Storage>::new_zeroed().assume_init() };
        let at = &raw mut *storage;
        for i in 0..DEPTH {
            // SAFETY: `at` points to a live `Storage` and `i` is below each array's length; places
            // are only written or pointed to. The box is leaked below, so that it stays where it is.
            unsafe {
                (*at).query_slices[i] =
                    iovec { iov_base: (&raw mut (*at).queries[i]).cast(), iov_len: QUERY };
                let head = &raw mut (*at).incoming[i].msg_hdr;
                (*head).msg_name = (&raw mut (*at).clients[i]).cast();
                (*head).msg_iov = &raw mut (*at).query_slices[i];
                (*head).msg_iovlen = 1;
                (*head).msg_control =
                    if addressed { (&raw mut (*at).controls[i]).cast() } else { null_mut() };
                let head = &raw mut (*at).outgoing[i].msg_hdr;
                (*head).msg_iov = &raw mut (*at).reply_slices[i];
                (*head).msg_iovlen = 1;
            }
        }
        let storage = NonNull::from(Box::leak(storage));
        Batch { storage, received: DEPTH, queued: 0, filled: 0 }
    }

    /// Waits for the first datagram, if told to, and takes all that are there;
    /// says how many. Replies not yet sent are forgotten.
    pub fn receive(&mut self, socket: &UdpSocket, wait: bool) -> io::Result<usize> {
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        let at = self.storage.as_ptr();
        for i in 0..self.received {
            // SAFETY: `at` is live and `received` never exceeds DEPTH.
            unsafe {
                let head = &raw mut (*at).incoming[i].msg_hdr;
                (*head).msg_namelen = size_of::<sockaddr_in6>() as socklen_t;
                let room = if (*head).msg_control.is_null() { 0 } else { size_of::<Control>() };
                (*head).msg_controllen = room as _;
            }
        }
        (self.received, self.queued, self.filled) = (0, 0, 0);
        // SAFETY: the headers point into `storage`, each with the length of what it points to, and
        // nobody else uses it during the call. No time-out is given.
        let count = unsafe {
            let heads = (&raw mut (*at).incoming).cast::<mmsghdr>();
            libc::recvmmsg(socket.as_raw_fd(), heads, DEPTH as _, flags as _, null_mut())
        };
        self.received = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: in bounds. A socket that was shut down gives one "message" from nowhere.
        let from_nowhere = self.received == 1 && unsafe { (*at).incoming[0].msg_hdr.msg_namelen } == 0;
        Ok(if from_nowhere { 0 } else { self.received })
    }

    /// The `i`th datagram's client and query, and room for the reply. None when it must not be
    /// answered: cut short, or sent from port 0, where no reply can arrive.
    pub fn message(&mut self, i: usize) -> Option<(SocketAddr, &[u8], &mut [u8])> {
        assert!(i < self.received && self.queued < DEPTH);
        let at = self.storage.as_ptr();
        // SAFETY: `i` is in bounds, and so are REPLY octets after `filled`, as fewer than DEPTH replies
        // of at most REPLY octets are there; the kernel has set `msg_len` to at most the
        // slice's length. The two slices lie in different fields and borrow `self`.
        unsafe {
            let head = &raw const (*at).incoming[i];
            let cut = (*head).msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            if cut || (*at).clients[i].sin6_port == 0 {
                return None;
            }
            let length = (*head).msg_len as usize;
            let query = std::slice::from_raw_parts((&raw const (*at).queries[i]).cast(), length);
            let room = (&raw mut (*at).replies).cast::<u8>().add(self.filled);
            Some((client_of(&(*at).clients[i]), query, std::slice::from_raw_parts_mut(room, REPLY)))
        }
    }

    /// Queues the first `length` octets of the room as the reply to the `i`th datagram; it will
    /// leave from the address that datagram was sent to.
    pub fn reply(&mut self, i: usize, length: usize) {
        assert!(i < self.received && self.queued < DEPTH && length <= REPLY);
        let at = self.storage.as_ptr();
        // SAFETY: all indices were checked; the header's pointers stay inside `storage`, with the
        // lengths the kernel itself gave for the client's address and the control message.
        unsafe {
            let base = (&raw mut (*at).replies).cast::<u8>().add(self.filled);
            (*at).reply_slices[self.queued] = iovec { iov_base: base.cast(), iov_len: length };
            let from = &raw const (*at).incoming[i].msg_hdr;
            let to = &raw mut (*at).outgoing[self.queued].msg_hdr;
            (*to).msg_name = (*from).msg_name;
            (*to).msg_namelen = (*from).msg_namelen;
            (*to).msg_control = null_mut();
            (*to).msg_controllen = 0;
            if (*from).msg_controllen != 0 {
                turn_around(&mut (*at).controls[i]);
                (*to).msg_control = (*from).msg_control;
                (*to).msg_controllen = (*from).msg_controllen;
            }
        }
        self.filled += length;
        self.queued += 1;
    }

    /// Sends the queued replies; says how many the kernel would not take.
    pub fn send(&mut self, socket: &UdpSocket) -> usize {
        let at = self.storage.as_ptr();
        let (mut done, mut refused) = (0, 0);
        while done < self.queued {
            // SAFETY: the first `queued` headers were filled in by `reply` and point into
            // `storage`, which nobody else uses during the call.
            let count = unsafe {
                let heads = (&raw mut (*at).outgoing).cast::<mmsghdr>().add(done);
                libc::sendmmsg(socket.as_raw_fd(), heads, (self.queued - done) as _, 0)
            };
            match usize::try_from(count) {
                Ok(count) if count > 0 => done += count,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                // The error is the first one's: no route, no buffer, forbidden by a filter. The
                // client will ask again; the others in the batch must not suffer.
                _ => (done, refused) = (done + 1, refused + 1),
            }
        }
        (self.queued, self.filled) = (0, 0);
        refused
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: made by `Box::leak` in `new`, given back once.
        drop(unsafe { Box::from_raw(self.storage.as_ptr()) });
    }
}

/// The address a datagram came from. IPv4 comes in the first octets of the same room.
fn client_of(client: &sockaddr_in6) -> SocketAddr {
    let port = u16::from_be(client.sin6_port);
    if i32::from(client.sin6_family) == libc::AF_INET {
        // `sockaddr_in` has its address where the other form has its flow information
        return (Ipv4Addr::from(client.sin6_flowinfo.to_ne_bytes()), port).into();
    }
    (Ipv6Addr::from(client.sin6_addr.s6_addr).to_canonical(), port).into()
}

/// Makes "it was sent to this address" into "send it from this address".
fn turn_around(control: &mut Control) {
    match (control.header.cmsg_level, control.header.cmsg_type) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // SAFETY: level and type say which variant the kernel has written.
            let info = unsafe { &mut control.info.v4 };
            info.ipi_ifindex = 0; // the way back may lead through another interface
            // Where the query went to a broadcast address the two differ, and only
            // `ipi_spec_dst` can be sent from.
            if info.ipi_spec_dst.s_addr == 0 {
                info.ipi_spec_dst = info.ipi_addr;
            }
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // SAFETY: as above.
            let info = unsafe { &mut control.info.v6 };
            let [first, second, ..] = info.ipi6_addr.s6_addr;
            let link_local = first == 0xfe && second & 0xc0 == 0x80;
            if !link_local {
                info.ipi6_ifindex = 0; // a link-local address means nothing without it
            }
        }
        _ => {}
    }
}

/// Makes each received datagram say which address it was sent to.
pub fn report_local_address(socket: &UdpSocket) -> io::Result<()> {
    let (level, name) = match socket.local_addr()?.ip() {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    switch_on(socket, level, name)
}

/// Makes a socket of the family of `peer` report every ICMP error, also those
/// that may pass by themselves, such as "host unreachable".
pub fn report_network_errors(socket: &impl AsFd, peer: IpAddr) -> io::Result<()> {
    match peer {
        IpAddr::V4(_) => switch_on(socket, libc::IPPROTO_IP, libc::IP_RECVERR),
        IpAddr::V6(_) => switch_on(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    }
}

/// Sets a socket option whose value is an int to 1.
fn switch_on(socket: &impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the value is an int and lives through the call.
    let done = unsafe {
        let length = size_of::<libc::c_int>() as socklen_t;
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const on).cast(), length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves the calling thread into a network namespace: the sockets it makes,
/// and the threads and processes it starts, are inside from now on.
pub fn enter_network_namespace(namespace: &File) -> io::Result<()> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Datagrams the kernel threw away because the socket's buffer was full.
pub fn overflows(socket: &UdpSocket) -> u64 {
    // SK_MEMINFO_VARS numbers; the ninth counts the drops.
    option::<9>(socket, libc::SO_MEMINFO).map_or(0, |numbers| numbers[8].into())
}

/// The process at the other end of a Unix socket, when it can be seen from here.
pub fn peer_process(socket: &impl AsFd) -> Option<u32> {
    let peer = option::<3>(socket, libc::SO_PEERCRED).ok()?; // pid, uid, gid
    Some(peer[0]).filter(|&pid| pid != 0)
}

/// Reads a socket option made of 32-bit numbers.
fn option<const N: usize>(socket: &impl AsFd, name: libc::c_int) -> io::Result<[u32; N]> {
    let mut value = [0; N];
    let mut length = size_of::<[u32; N]>() as socklen_t;
    // SAFETY: the kernel writes at most `length` octets into `value`, an array of integers, for
    // which every pattern of bits is valid.
    let done = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length)
    };
    if done == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Lets a task wait for a file descriptor that is no socket to become readable.
pub fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, and stays the same one, until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// A user of this system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// All groups it is in, that one among them.
    pub groups: Vec<u32>,
}

/// Looks a user up by name, wherever the system keeps them; none: there is no
/// such user.
pub fn find_user(name: &str) -> io::Result<Option<User>> {
    let Ok(c_name) = CString::new(name) else { return Ok(None) };
    let mut room = vec![0_u8; 1 << 10];
    let (uid, gid) = loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = null_mut();
        // SAFETY: the name ends with a zero; what is found is written into `entry` and `room`, of
        // which the length is told, and both live through the call.
        let code = unsafe {
            libc::getpwnam_r(
                c_name.as_ptr(),
                entry.as_mut_ptr(),
                room.as_mut_ptr().cast(),
                room.len(),
                &raw mut found,
            )
        };
        match code {
            0 if !found.is_null() => {
                // SAFETY: it points to `entry`, which was filled in; both fields are integers.
                break unsafe { ((*found).pw_uid, (*found).pw_gid) };
            }
            0 | libc::ENOENT | libc::ESRCH => return Ok(None),
            libc::EINTR => {}
            libc::ERANGE if room.len() < 1 << 20 => room.resize(room.len() * 2, 0),
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    };
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: at most `count` numbers are written into `groups`, and the name ends with a zero.
        let done = unsafe { libc::getgrouplist(c_name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if done >= 0 {
            groups.truncate(count as usize);
            return Ok(Some(User { name: name.to_owned(), uid, gid, groups }));
        }
        if groups.len() > 1 << 16 {
            return Err(io::Error::other("it is in too many groups"));
        }
        groups.resize(groups.len() * 2, 0);
    }
}

/// A thread that may still open low ports and large buffers, for one task.
#[derive(Debug)]
pub struct Privileged {
    tasks: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    thread: thread::JoinHandle<io::Result<()>>,
    uid: u32,
}

/// Makes the whole process, all of its threads, this user: groups, then uid,
/// and with root's uid all capabilities go. One thread alone keeps those that
/// sockets need, for the task it is given. An error may leave all half way:
/// then the process should end.
pub fn become_user(user: &User) -> io::Result<Privileged> {
    let check = |done: libc::c_int| if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let (uid, gid) = (user.uid, user.gid);
    let (tasks, inbox) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    let (ready, is_ready) = mpsc::channel();
    let thread = thread::Builder::new().name("sockets".into()).spawn(move || {
        let kept = set_keep_capabilities(true);
        let _ = ready.send(rustix::thread::gettid().as_raw_nonzero().get());
        kept?;
        let Ok(task) = inbox.recv() else { return Ok(()) };
        let few = CapabilitySet::NET_BIND_SERVICE | CapabilitySet::NET_ADMIN;
        set_capabilities(
            None,
            CapabilitySets { effective: few, permitted: few, inheritable: CapabilitySet::empty() },
        )?;
        task();
        Ok(())
    })?;
    let apart = is_ready.recv().map_err(|_| io::Error::other("a thread has ended"))?;
    // SAFETY: the list lives through the call. These are the C library's own functions, which have
    // every thread do the same; the bare system calls would change the calling one alone.
    unsafe {
        check(libc::setgroups(user.groups.len() as _, user.groups.as_ptr()))?;
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))?;
        if uid != 0 && libc::setresuid(0, 0, 0) == 0 {
            return Err(io::Error::other("root could be had back"));
        }
    }
    all_threads_are(uid, Some(apart))?;
    Ok(Privileged { tasks, thread, uid })
}

impl Privileged {
    /// Does the task with what is left of root's rights, and gives them up.
    pub fn run<T: Send + 'static>(self, task: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (done, result) = mpsc::channel();
        let task = move || drop(done.send(task()));
        let gone = |_| io::Error::other("the thread that opens sockets has ended");
        self.tasks.send(Box::new(task)).map_err(|_| gone(()))?;
        let ended = self.thread.join().map_err(|_| gone(()))?;
        ended?;
        all_threads_are(self.uid, None)?;
        result.recv().map_err(|_| gone(()))
    }
}

/// Sees that every thread is this user and may nothing more, `but` for one.
fn all_threads_are(uid: u32, but: Option<i32>) -> io::Result<()> {
    for thread in fs::read_dir("/proc/self/task")? {
        let thread = thread?;
        if but.is_some_and(|but| *thread.file_name() == *but.to_string()) {
            continue;
        }
        // one that has ended meanwhile is nobody
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
        if let Some(line) = left_over(&status, uid) {
            return Err(io::Error::other(format!("a thread still has {line}")));
        }
    }
    Ok(())
}

/// The line of a thread's status that says it is somebody else, or may more.
fn left_over(status: &str, uid: u32) -> Option<&str> {
    status.lines().find(|line| {
        let Some((key, value)) = line.split_once(':') else { return false };
        match key {
            "Uid" => value.split_whitespace().any(|one| one.parse() != Ok(uid)),
            "CapPrm" | "CapEff" | "CapAmb" => value.trim().bytes().any(|digit| digit != b'0'),
            _ => false,
        }
    })
}

/// The sockets that the service manager has opened for this process (LISTEN_FDS),
/// with their names. They are given away once; later calls get none.
pub fn passed_sockets() -> io::Result<Vec<(OwnedFd, String)>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    // meant for another process, from which the variables have come down to this one
    let ours = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    if !ours {
        return Ok(Vec::new());
    }
    let passed = sd_notify::listen_fds_with_names()?;
    // SAFETY: LISTEN_PID says that they are for this process, each was seen to be open, nothing else
    // here knows of them, and they are taken once.
    Ok(passed.map(|(fd, name)| (unsafe { OwnedFd::from_raw_fd(fd) }, name)).collect())
}

/// Gives memory that is free inside the process back to the kernel. Reading a
/// configuration takes many times the memory of what is kept of it.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no preconditions; it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let server = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let client = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        client.connect(server.local_addr().expect("bound")).expect("UDP connects at once");
        (server, client)
    }

    #[test]
    fn a_batch_takes_what_is_there_and_answers_each_client() {
        let (server, client) = pair();
        let mut batch = Batch::new(false);
        for round in 0..3_u8 {
            for i in 0..DEPTH as u8 {
                client.send(&[round, i]).expect("sent");
            }
            assert_eq!(batch.receive(&server, true).expect("received"), DEPTH);
            for i in 0..DEPTH {
                let (_, query, room) = batch.message(i).expect("a datagram");
                assert_eq!(query, [round, i as u8]);
                room[..3].copy_from_slice(&[query[0], query[1], 7]);
                batch.reply(i, 3);
            }
            assert_eq!(batch.send(&server), 0);
            for i in 0..DEPTH as u8 {
                let mut reply = [0; 9];
                assert_eq!(client.recv(&mut reply).expect("a reply"), 3);
                assert_eq!(reply[..3], [round, i, 7]);
            }
        }
    }

    #[test]
    fn a_reply_that_cannot_leave_does_not_hold_up_the_others() {
        let (server, client) = pair();
        let mut batch = Batch::new(false);
        for i in 0..3 {
            client.send(&[i]).expect("sent");
        }
        assert_eq!(batch.receive(&server, true).expect("received"), 3);
        for i in 0..3 {
            batch.message(i).expect("a datagram");
            batch.reply(i, 1);
        }
        // SAFETY: in bounds. An address of one octet is none.
        unsafe { (*batch.storage.as_ptr()).outgoing[1].msg_hdr.msg_namelen = 1 };
        assert_eq!(batch.send(&server), 1);
        let mut reply = [0; 9];
        assert_eq!(client.recv(&mut reply).expect("the first"), 1);
        assert_eq!(client.recv(&mut reply).expect("the third"), 1);
    }

    #[test]
    fn an_oversized_datagram_is_not_a_message() {
        let (server, client) = pair();
        let mut batch = Batch::new(false);
        client.send(&[1; QUERY + 1]).expect("sent");
        client.send(&[1; QUERY]).expect("sent");
        assert_eq!(batch.receive(&server, true).expect("received"), 2);
        assert!(batch.message(0).is_none());
        assert_eq!(batch.message(1).expect("as long as allowed").1.len(), QUERY);
    }

    #[test]
    fn a_thread_that_is_somebody_else_or_may_more_is_seen() {
        let good = "Name:\thale\nUid:\t5\t5\t5\t5\nCapInh:\t0000000000000400\nCapPrm:\t0000000000000000\n\
                    CapEff:\t0000000000000000\nCapAmb:\t0000000000000000\n";
        for (from, to, expected) in [
            ("hale", "hale", None),
            ("5\t5\t5\t5", "5\t0\t5\t5", Some("Uid:\t5\t0\t5\t5")),
            ("Prm:\t00", "Prm:\t10", Some("CapPrm:\t1000000000000000")),
        ] {
            assert_eq!(left_over(&good.replace(from, to), 5), expected);
        }
    }

    #[test]
    fn users_are_found_by_name() {
        let root = find_user("root").expect("a list of users").expect("everywhere");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(find_user("nobody of that name").expect("a list of users"), None);
    }

    #[test]
    fn dropped_datagrams_are_counted_by_the_kernel() {
        let (server, client) = pair();
        rustix::net::sockopt::set_socket_recv_buffer_size(&server, 0).expect("the least allowed");
        assert_eq!(overflows(&server), 0);
        for _ in 0..100 {
            client.send(&[0; 100]).expect("sent");
        }
        assert!(overflows(&server) > 0);
    }
}
