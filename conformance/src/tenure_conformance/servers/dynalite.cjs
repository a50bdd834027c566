// Serves dynalite, which by itself ends with the first request that is cut off on its way: module, host, port, directory.
const [module_, host, port, path] = process.argv.slice(2)

process.on("uncaughtException", (error) => {
  if (error.code !== "ECONNRESET" && error.code !== "EPIPE") throw error
})
const server = require(module_)({ path, createTableMs: 0 })
server.keepAliveTimeout = 600_000 // a connection that is closed just as it is used fails a call
server.listen(port, host)
