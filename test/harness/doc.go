// Package harness is what whole-product tests share: the product built once,
// identities to run it as, repositories for it to work on, and a picture of
// the host before and after.
//
// A test package calls Main from TestMain and Each in every test:
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
//
//	func TestX(t *testing.T) {
//		harness.Each(t, func(t *testing.T, id *harness.Identity) {
//			repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
//			out := id.Caisson(t, repo, "run", "--", "cat", "a.txt")
//			...
//		})
//	}
//
// Its limit: it knows the product as a user does, by its command line and the
// folders that it documents; it imports none of its rooms.
package harness
